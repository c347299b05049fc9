import { type AbortSignalLike, type CallOptions, type Clock, KrabkaError, MAX_TIMER_MS } from "@krabka/core";

/** The bounds of one call: its time limit and its signal. Ending the wait does not end the work that was waited for. */
export class CallLimit {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #endsAtMs: number;
  readonly #signal: AbortSignalLike | undefined;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` for a limit that can't be kept */
  constructor(clock: Clock, options: CallOptions | undefined, defaultTimeoutMs: number) {
    this.#timeoutMs = options?.timeoutMs ?? defaultTimeoutMs;
    if (!(this.#timeoutMs > 0 && this.#timeoutMs <= MAX_TIMER_MS)) {
      throw new KrabkaError("INVALID_ARGUMENT", `timeoutMs must be in 1..${MAX_TIMER_MS}; got ${this.#timeoutMs}`);
    }
    this.#clock = clock;
    this.#endsAtMs = clock.monotonicMs() + this.#timeoutMs;
    this.#signal = options?.signal;
  }

  /** `TIMEOUT` or `ABORTED` once the call must end. */
  get reached(): KrabkaError | undefined {
    if (this.#signal?.aborted) {
      return new KrabkaError("ABORTED", "The caller's signal fired", { cause: this.#signal.reason });
    }
    if (this.#clock.monotonicMs() < this.#endsAtMs) return undefined;
    return new KrabkaError("TIMEOUT", `No answer came within ${this.#timeoutMs} ms`);
  }

  check(): void {
    const { reached } = this;
    if (reached !== undefined) throw reached;
  }

  /** @throws {KrabkaError} `TIMEOUT` or `ABORTED` when the call must end before `work` settles */
  race<T>(work: Promise<T>): Promise<T> {
    const { reached } = this;
    if (reached !== undefined) {
      work.catch(() => undefined);
      return Promise.reject(reached);
    }
    return new Promise<T>((resolve, reject) => {
      const look = (): void => {
        const error = this.reached;
        // Node's timers may fire a fraction of a millisecond early by the monotonic clock.
        if (error === undefined) timer = this.#clock.setTimer(1, look);
        else {
          leave();
          reject(error);
        }
      };
      let timer = this.#clock.setTimer(Math.ceil(this.#endsAtMs - this.#clock.monotonicMs()), look);
      this.#signal?.addEventListener("abort", look, { once: true });
      const leave = (): void => {
        timer.cancel();
        this.#signal?.removeEventListener("abort", look);
      };
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
}
