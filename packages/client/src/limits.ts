import { type Clock, KrabkaError, MAX_TIMER_MS } from "@krabka/core";

/** The bounds that a caller put on a call. */
export interface LimitOptions {
  readonly signal?: AbortSignal | undefined;
  /** Whole milliseconds, 1 to 2^31-1. */
  readonly timeoutMs?: number | undefined;
}

/**
 * A caller's abort signal and time limit as one thing that can be waited on, asked for its rest, and disposed of.
 */
export class Limit {
  /** Fires when either bound is reached; its reason is the error to throw. */
  readonly signal: AbortSignal;
  readonly #clock: Clock;
  readonly #endsAtMs: number;
  readonly #dispose: () => void;

  /**
   * @param what Names the call in messages, such as `acquire`.
   * @param closing Ends the call too, with this signal's own reason. Apart, and not by `AbortSignal.any`: with that, Node 20
   * may collect a caller's `AbortSignal.timeout`, which then never fires.
   */
  constructor(clock: Clock, what: string, options: LimitOptions = {}, closing?: AbortSignal) {
    const { signal: outer, timeoutMs } = options;
    if (timeoutMs !== undefined && !(Number.isInteger(timeoutMs) && timeoutMs >= 1 && timeoutMs <= MAX_TIMER_MS)) {
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `timeoutMs must be whole milliseconds in 1..${MAX_TIMER_MS}; got ${String(timeoutMs)}`,
      );
    }
    const controller = new AbortController();
    const onAbort = () => {
      controller.abort(new KrabkaError("ABORTED", `${what} was aborted by the caller`, { cause: outer?.reason }));
    };
    const onClosing = () => controller.abort(closing?.reason);
    this.signal = controller.signal;
    this.#clock = clock;
    this.#endsAtMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.monotonicMs() + timeoutMs;
    const timer =
      timeoutMs === undefined
        ? undefined
        : clock.setTimer(timeoutMs, () => {
            controller.abort(new KrabkaError("TIMEOUT", `${what} did not finish within timeoutMs ${timeoutMs}`));
          });
    if (outer?.aborted) onAbort();
    else outer?.addEventListener("abort", onAbort, { once: true });
    if (closing?.aborted) onClosing();
    else closing?.addEventListener("abort", onClosing, { once: true });
    this.#dispose = () => {
      timer?.cancel();
      outer?.removeEventListener("abort", onAbort);
      closing?.removeEventListener("abort", onClosing);
    };
  }

  /** Milliseconds left, at least 1; undefined for no limit. */
  get restMs(): number | undefined {
    if (this.#endsAtMs === Number.POSITIVE_INFINITY) return undefined;
    return Math.max(1, Math.ceil(this.#endsAtMs - this.#clock.monotonicMs()));
  }

  /** Settles as `promise` does, or rejects with the reason as soon as a bound is reached. */
  race<T>(promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const onAbort = () => reject(this.signal.reason);
      if (this.signal.aborted) onAbort();
      else this.signal.addEventListener("abort", onAbort, { once: true });
      promise.then(resolve, reject).finally(() => this.signal.removeEventListener("abort", onAbort));
    });
  }

  /** @throws the reason, once a bound is reached. */
  throwIfReached(): void {
    if (this.signal.aborted) throw this.signal.reason;
  }

  dispose(): void {
    this.#dispose();
  }
}

/** Resolves after `delayMs`, or at once when `signal` fires; the caller looks at the signal. */
export function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const done = () => {
      timer.cancel();
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = clock.setTimer(Math.min(Math.max(0, delayMs), MAX_TIMER_MS), done);
    signal.addEventListener("abort", done, { once: true });
  });
}
