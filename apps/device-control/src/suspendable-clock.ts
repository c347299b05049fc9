import { systemClock } from "@krabka/client";
import type { Clock } from "@krabka/core";

/**
 * A clock that can stand still, like the monotonic clock of a suspended machine: after waking up, the process has no way
 * to notice that time passed.
 */
export class SuspendableClock implements Clock {
  #hiddenMs = 0;

  wallMs(): number {
    return Math.floor(systemClock.wallMs() - this.#hiddenMs);
  }

  monotonicMs(): number {
    return systemClock.monotonicMs() - this.#hiddenMs;
  }

  setTimer(delayMs: number, fire: () => void) {
    return systemClock.setTimer(delayMs, fire);
  }

  /** Blocks the whole process for `forMs`, or longer if it is stopped meanwhile, and hides all of it. */
  suspend(forMs: number): void {
    const fromMs = systemClock.monotonicMs();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs);
    this.#hiddenMs += systemClock.monotonicMs() - fromMs;
  }
}
