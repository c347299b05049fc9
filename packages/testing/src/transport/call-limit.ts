import { type AbortSignalLike, type CallOptions, type Clock, KrabkaError, type Timer } from "@krabka/core";
import { deferred } from "../deferred.js";

/** Something that may end all calls at once, such as the close of a transport. */
export interface Ending {
  readonly error: KrabkaError | undefined;
  onEnd(listener: (error: KrabkaError) => void): () => void;
}

/** The bounds of one call: its time limit, its signal, and the life of the transport. */
export class CallLimit {
  readonly #clock: Clock;
  readonly #failed = deferred<never>();
  readonly #signal: AbortSignalLike | undefined;
  readonly #timer: Timer;
  readonly #stopListening: () => void;
  #fault: KrabkaError | undefined;

  constructor(clock: Clock, ending: Ending, options: CallOptions | undefined, defaultTimeoutMs: number) {
    this.#clock = clock;
    this.#failed.promise.catch(() => {});
    this.#signal = options?.signal;
    const timeoutMs = options?.timeoutMs ?? defaultTimeoutMs;
    this.#timer = clock.setTimer(timeoutMs, () =>
      this.#fail(new KrabkaError("TIMEOUT", `The call took longer than its limit of ${timeoutMs} ms`)),
    );
    this.#stopListening = ending.onEnd((error) => this.#fail(error));
    if (ending.error !== undefined) this.#fail(ending.error);
    if (this.#signal?.aborted) this.#onAbort();
    else this.#signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  /** Why the call must end, once it must. */
  get fault(): KrabkaError | undefined {
    return this.#fault;
  }

  /** @throws {KrabkaError} once the call must end */
  check(): void {
    if (this.#fault !== undefined) throw this.#fault;
  }

  /** @throws {KrabkaError} when the call must end before `promise` settles */
  race<T>(promise: Promise<T>): Promise<T> {
    return Promise.race([this.#failed.promise, promise]);
  }

  async sleep(ms: number): Promise<void> {
    let timer: Timer | undefined;
    try {
      await this.race(
        new Promise<void>((resolve) => {
          timer = this.#clock.setTimer(ms, resolve);
        }),
      );
    } finally {
      timer?.cancel();
    }
  }

  dispose(): void {
    this.#timer.cancel();
    this.#stopListening();
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  readonly #onAbort = (): void => {
    this.#fail(new KrabkaError("ABORTED", "The call was aborted", { cause: this.#signal?.reason }));
  };

  #fail(error: KrabkaError): void {
    if (this.#fault !== undefined) return;
    this.#fault = error;
    this.#failed.reject(error);
  }
}
