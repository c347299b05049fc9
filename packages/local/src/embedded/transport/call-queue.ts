import type { CallLimit } from "../link/call-limit.js";

/** Runs calls one at a time, in their order. A call that waits may leave at its limit; one that began runs to its end. */
export class CallQueue {
  #last: Promise<unknown> = Promise.resolve();

  /** Settles when all that was queued until now is over. */
  get idle(): Promise<unknown> {
    return this.#last;
  }

  /** @throws {KrabkaError} `TIMEOUT` or `ABORTED` when the limit is reached before `work` began */
  run<T>(limit: CallLimit, work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    let hasLeft = false;
    const result = limit.race(before).then(work, (error: unknown) => {
      hasLeft = true;
      throw error;
    });
    // Whoever comes next waits for this call, or, if it left, for what this one waited for.
    const over = (): unknown => (hasLeft ? before : undefined);
    this.#last = result.then(over, over);
    return result;
  }
}
