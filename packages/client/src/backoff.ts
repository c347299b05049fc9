/**
 * Growing pauses between attempts: 1 ms at first, since the usual reason (a coordinator that is just ending a
 * transaction) passes within milliseconds, then doubling with jitter up to two seconds for a sick role.
 */
export class Backoff {
  #nextMs = 1;

  /** The pause before the next attempt. */
  next(): number {
    const ms = this.#nextMs;
    this.#nextMs = Math.min(2_000, ms * 2);
    return ms <= 4 ? ms : ms * (0.75 + Math.random() / 2);
  }

  reset(): void {
    this.#nextMs = 1;
  }
}
