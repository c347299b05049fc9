import type { Clock, Timer } from "@krabka/core";

/**
 * The clocks of a machine that can be suspended: then monotonic time stands still and no timer fires, so a leader on it
 * still believes in its lease when it wakes up. Only the log and the broker know better.
 */
export class SuspendableClock implements Clock {
  #suspendedAtMs: number | undefined;
  #sleptMs = 0;
  readonly #due = new Set<() => void>();

  wallMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return (this.#suspendedAtMs ?? performance.now()) - this.#sleptMs;
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    const dueAtMs = this.monotonicMs() + delayMs;
    let timer: NodeJS.Timeout;
    const ring = (): void => {
      const restMs = dueAtMs - this.monotonicMs();
      if (this.#suspendedAtMs !== undefined) this.#due.add(ring);
      else if (restMs > 0) timer = setTimeout(ring, Math.ceil(restMs));
      else fire();
    };
    timer = setTimeout(ring, delayMs);
    return {
      cancel: () => {
        clearTimeout(timer);
        this.#due.delete(ring);
      },
    };
  }

  suspend(): void {
    this.#suspendedAtMs ??= performance.now();
  }

  resume(): void {
    if (this.#suspendedAtMs === undefined) return;
    this.#sleptMs += performance.now() - this.#suspendedAtMs;
    this.#suspendedAtMs = undefined;
    const due = [...this.#due];
    this.#due.clear();
    for (const ring of due) ring();
  }
}
