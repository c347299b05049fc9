import { type AbortSignalLike, type CallOptions, type Clock, KrabkaError, MAX_TIMER_MS } from "@krabka/core";

/**
 * The bounds of one call: a time limit and an abort signal, joined.
 *
 * Waiting on a promise under a deadline ends the wait, not the work: what goes on must not reject unheard.
 */
export class Deadline {
  readonly #clock: Clock;
  readonly #endsAtMs: number;
  readonly #timeoutMs: number;
  readonly #signal: AbortSignalLike | undefined;

  constructor(clock: Clock, options: CallOptions | undefined, defaultTimeoutMs: number) {
    const timeoutMs = options?.timeoutMs ?? defaultTimeoutMs;
    if (!(timeoutMs > 0 && timeoutMs <= MAX_TIMER_MS)) {
      throw new KrabkaError("INVALID_ARGUMENT", `timeoutMs must be in 1..${MAX_TIMER_MS}; got ${timeoutMs}`);
    }
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#endsAtMs = clock.monotonicMs() + timeoutMs;
    this.#signal = options?.signal;
  }

  get clock(): Clock {
    return this.#clock;
  }

  /** 0 once it has passed. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAtMs - this.#clock.monotonicMs());
  }

  /** Why the call has ended, or undefined while it goes on. `TIMEOUT` or `ABORTED`. */
  get ended(): KrabkaError | undefined {
    const signal = this.#signal;
    if (signal?.aborted) return new KrabkaError("ABORTED", "The caller's signal was aborted", { cause: signal.reason });
    if (this.remainingMs > 0) return undefined;
    return new KrabkaError("TIMEOUT", `The time limit of ${this.#timeoutMs} ms passed`);
  }

  throwIfEnded(): void {
    const ended = this.ended;
    if (ended !== undefined) throw ended;
  }

  /** This deadline's signal with at most `share` of what is left of its time. */
  part(share: number): Deadline {
    return new Deadline(
      this.#clock,
      { timeoutMs: Math.max(1, this.remainingMs * share), signal: this.#signal },
      this.#timeoutMs,
    );
  }

  /** Resolves like `work`, or rejects with `TIMEOUT` or `ABORTED` when the call ends first. */
  race<T>(work: Promise<T>): Promise<T> {
    const ended = this.ended;
    if (ended !== undefined) {
      work.catch(() => undefined);
      return Promise.reject(ended);
    }
    return new Promise<T>((resolve, reject) => {
      const leave = this.#onEnd(reject);
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

  /** @throws {KrabkaError} `TIMEOUT` or `ABORTED` when the call ends before the pause does. */
  pause(delayMs: number): Promise<void> {
    const ended = this.ended;
    if (ended !== undefined) return Promise.reject(ended);
    return new Promise<void>((resolve, reject) => {
      const timer = this.#clock.setTimer(delayMs, () => {
        leave();
        resolve();
      });
      const leave = this.#onEnd((error) => {
        timer.cancel();
        reject(error);
      });
    });
  }

  #onEnd(end: (error: KrabkaError) => void): () => void {
    const signal = this.#signal;
    const fire = (): void => {
      const ended = this.ended;
      // Timers may fire a fraction early by the monotonic clock.
      if (ended === undefined) timer = this.#clock.setTimer(1, fire);
      else {
        leave();
        end(ended);
      }
    };
    let timer = this.#clock.setTimer(Math.ceil(this.remainingMs), fire);
    const leave = (): void => {
      timer.cancel();
      signal?.removeEventListener("abort", fire);
    };
    signal?.addEventListener("abort", fire, { once: true });
    return leave;
  }
}

/** Delays that grow from `firstMs` to `lastMs`; after quick first steps they double. */
export class Backoff {
  readonly #firstMs: number;
  readonly #lastMs: number;
  readonly #quickSteps: number;
  #step = 0;

  constructor(firstMs: number, lastMs: number, quickSteps = 0) {
    this.#firstMs = firstMs;
    this.#lastMs = lastMs;
    this.#quickSteps = quickSteps;
  }

  next(): number {
    const doublings = Math.max(0, this.#step - this.#quickSteps);
    this.#step += 1;
    return Math.min(this.#lastMs, this.#firstMs * 2 ** Math.min(doublings, 30));
  }

  reset(): void {
    this.#step = 0;
  }
}
