import { type Deadline, KrabkaError } from "@krabka/core";
import { type CallGate, type Lane, nativeCalls } from "./call-gate.js";
import type { Callback, NativeError } from "./native-binding.js";
import { errorOf } from "./native-errors.js";

/** What a native call answered. */
export type Answer<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: NativeError };

const closedError = (): KrabkaError => new KrabkaError("CLOSED", "The native client was closed");

/**
 * The calls of one native client and its end. A client may be freed only when no call of it is under way, since
 * node-rdkafka does not lock most of them against that.
 */
export class NativeLifetime {
  readonly #gate: CallGate;
  readonly #calls = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  constructor(gate: CallGate = nativeCalls) {
    this.#gate = gate;
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /**
   * Runs one native call when there is a slot for it. A call that began is waited for.
   *
   * @throws {KrabkaError} `TIMEOUT`, `ABORTED`, `CLOSED` when it did not begin
   */
  async attempt<T>(lane: Lane, deadline: Deadline, start: (done: Callback<T>) => void): Promise<Answer<T>> {
    if (this.isClosed) throw closedError();
    const leave = await this.#gate.enter(lane, deadline);
    if (this.isClosed) {
      leave();
      throw closedError();
    }
    const call = new Promise<Answer<T>>((resolve) => {
      start((error, value) => resolve(error ? { ok: false, error } : { ok: true, value }));
    });
    this.#calls.add(call);
    try {
      return await call;
    } finally {
      this.#calls.delete(call);
      leave();
    }
  }

  /** As `attempt`. @throws {KrabkaError} also what the call answered, with librdkafka's error as cause */
  async call<T>(lane: Lane, deadline: Deadline, what: string, start: (done: Callback<T>) => void): Promise<T> {
    const answer = await this.attempt(lane, deadline, start);
    if (answer.ok) return answer.value;
    throw errorOf(answer.error, what);
  }

  /** Lets no call begin any more, waits for those under way and frees the client. Idempotent; never rejects. */
  close(free: (done: () => void) => void): Promise<void> {
    this.#closing ??= this.#free(free);
    return this.#closing;
  }

  async #free(free: (done: () => void) => void): Promise<void> {
    await Promise.allSettled([...this.#calls]);
    const leave = await this.#gate.enter("patient", undefined);
    await new Promise<void>(free);
    leave();
  }
}
