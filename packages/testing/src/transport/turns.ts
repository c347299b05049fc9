import type { CallOptions } from "@krabka/core";
import { deferred } from "../deferred.js";
import type { CallLimit } from "./call-limit.js";
import type { FakeConnection } from "./fake-connection.js";

/** Runs calls one after the other, in their order. */
export class Turns {
  readonly #connection: FakeConnection;
  #tail: Promise<void> = Promise.resolve();

  constructor(connection: FakeConnection) {
    this.#connection = connection;
  }

  /**
   * Runs `work` when all calls before are done, or as soon as this call must end: `work` then finds the fault in its limit
   * and must not send anything.
   */
  async take<T>(options: CallOptions | undefined, work: (limit: CallLimit) => Promise<T>): Promise<T> {
    const limit = this.#connection.limit(options);
    const before = this.#tail;
    const done = deferred<void>();
    this.#tail = before.then(() => done.promise);
    try {
      await limit.race(before).catch(() => {});
      return await work(limit);
    } finally {
      limit.dispose();
      done.resolve();
    }
  }
}
