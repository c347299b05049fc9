/** A timer that was set; cancelling it twice, or after it fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/**
 * Time, passed in wherever it is needed.
 *
 * Wall time is compared with instants in records; it may step. Monotonic time measures extents and judges validity; it
 * never steps back, and on Linux it stands still while the machine is suspended.
 */
export interface Clock {
  /** Milliseconds since 1970, whole. */
  wallMs(): number;
  /** Milliseconds from an arbitrary origin, with fractions. */
  monotonicMs(): number;
  /** Calls `fire` once, not before `delayMs` have passed (0 to 2^31-1; more makes Node fire after 1 ms). */
  setTimer(delayMs: number, fire: () => void): Timer;
}

/** The longest delay that Node's timers take; a longer one becomes 1 ms. */
export const MAX_TIMER_MS = 2 ** 31 - 1;
