import { type Clock, MAX_TIMER_MS } from "./clock.js";
import { KrabkaError } from "./errors.js";
import type { AbortSignalLike, CallOptions } from "./transport.js";

/** What a call waits for, which may know why it takes so long. */
export interface Awaited {
  readonly reason: KrabkaError | undefined;
}

/**
 * The bounds of one call: a time limit and an abort signal, joined.
 *
 * Waiting on a promise under a deadline ends the wait, not the work, whose late failure is dropped.
 */
export class Deadline {
  readonly clock: Clock;
  readonly #endsAtMs: number;
  readonly #timeoutMs: number;
  readonly #signal: AbortSignalLike | undefined;
  #awaited: Awaited | undefined;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` for a time limit that no timer can keep */
  constructor(clock: Clock, options: CallOptions | undefined, defaultTimeoutMs: number) {
    const timeoutMs = options?.timeoutMs ?? defaultTimeoutMs;
    if (!(timeoutMs > 0 && timeoutMs <= MAX_TIMER_MS)) {
      throw new KrabkaError("INVALID_ARGUMENT", `timeoutMs must be in 1..${MAX_TIMER_MS}; got ${timeoutMs}`);
    }
    this.clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#endsAtMs = clock.monotonicMs() + timeoutMs;
    this.#signal = options?.signal;
  }

  /** 0 once it has passed. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAtMs - this.clock.monotonicMs());
  }

  /** From now on a time limit that passes gives the reason of `awaited` instead of a bare `TIMEOUT`, where there is one. */
  waitsFor(awaited: Awaited): void {
    this.#awaited = awaited;
  }

  /** Why the call has ended, or undefined while it goes on. `ABORTED`, `TIMEOUT`, or why what it waits for did not come. */
  get ended(): KrabkaError | undefined {
    const signal = this.#signal;
    if (signal?.aborted) return new KrabkaError("ABORTED", "The caller's signal was aborted", { cause: signal.reason });
    if (this.remainingMs > 0) return undefined;
    const timeout = new KrabkaError("TIMEOUT", `The time limit of ${this.#timeoutMs} ms passed`);
    const reason = this.#awaited?.reason;
    return reason === undefined ? timeout : new KrabkaError(reason.code, reason.message, { cause: timeout });
  }

  /** @throws {KrabkaError} `ended` */
  throwIfEnded(): void {
    const ended = this.ended;
    if (ended !== undefined) throw ended;
  }

  /** A limit of its own inside this one: `atMostMs`, or what is left. */
  within(atMostMs: number): Deadline {
    const timeoutMs = Math.max(1, Math.min(atMostMs, this.remainingMs));
    const inner = new Deadline(this.clock, { timeoutMs, signal: this.#signal }, timeoutMs);
    inner.#awaited = this.#awaited;
    return inner;
  }

  /** Settles as `work` does, or rejects with `ended` when the call ends first. */
  race<T>(work: Promise<T>): Promise<T> {
    const ended = this.ended;
    if (ended !== undefined) {
      work.catch(() => undefined);
      return Promise.reject(ended);
    }
    return new Promise<T>((resolve, reject) => {
      const leave = this.onEnd(reject);
      work.then(
        (value) => {
          leave();
          resolve(value);
        },
        (error: unknown) => {
          leave();
          reject(error);
        },
      );
    });
  }

  /** @throws {KrabkaError} `ended`, when the call ends before the pause does. */
  pause(delayMs: number): Promise<void> {
    const ended = this.ended;
    if (ended !== undefined) return Promise.reject(ended);
    return new Promise<void>((resolve, reject) => {
      const timer = this.clock.setTimer(delayMs, () => {
        leave();
        resolve();
      });
      const leave = this.onEnd((error) => {
        timer.cancel();
        reject(error);
      });
    });
  }

  /** Calls `end` once when the call ends; not after the returned function was called. */
  onEnd(end: (error: KrabkaError) => void): () => void {
    const signal = this.#signal;
    const fire = (): void => {
      const ended = this.ended;
      // Timers may fire a fraction early by the monotonic clock.
      if (ended === undefined) timer = this.clock.setTimer(1, fire);
      else {
        leave();
        end(ended);
      }
    };
    let timer = this.clock.setTimer(Math.ceil(this.remainingMs), fire);
    const leave = (): void => {
      timer.cancel();
      signal?.removeEventListener("abort", fire);
    };
    signal?.addEventListener("abort", fire, { once: true });
    return leave;
  }
}
