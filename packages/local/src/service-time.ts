import type { Clock } from "@krabka/core";

/**
 * The time in which leases and silence are measured: milliseconds since the log was created, never falling.
 *
 * While the service runs it follows the monotonic clock, so a stepped wall clock changes nothing. How long the service was
 * down can only be told by the wall clock: it counts from the last record to the opening, and as nothing if it went back.
 */
export class ServiceTime {
  readonly #clock: Clock;
  readonly #openedAtMs: number;
  readonly #openedMonotonicMs: number;

  /** @param lastAtMs service time of the last record @param lastWallMs wall clock at that time */
  constructor(clock: Clock, lastAtMs: number, lastWallMs: number) {
    const downMs = lastWallMs === 0 ? 0 : Math.max(0, Math.floor(clock.wallMs()) - lastWallMs);
    this.#clock = clock;
    this.#openedAtMs = lastAtMs + downMs;
    this.#openedMonotonicMs = clock.monotonicMs();
  }

  nowMs(): number {
    // Only the extent since the opening is rounded: a sum with the origin could round to below the last record's time.
    return this.#openedAtMs + Math.floor(this.#clock.monotonicMs() - this.#openedMonotonicMs);
  }

  wallMs(): number {
    return Math.max(0, Math.floor(this.#clock.wallMs()));
  }
}
