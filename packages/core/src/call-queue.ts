import type { Deadline } from "./deadline.js";

/** Runs calls one at a time in their order. A call that waits may leave; one that began runs to its end. */
export class CallQueue {
  #last: Promise<unknown> = Promise.resolve();

  /** Settles when everything that was queued until now has ended. */
  get idle(): Promise<unknown> {
    return this.#last;
  }

  /** @param onLeft gives the result of a call whose deadline ended while it waited. */
  run<T>(deadline: Deadline, onLeft: (why: Error) => T | Promise<T>, work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    let hasLeft = false;
    const result = deadline.race(before).then(work, (why: Error) => {
      hasLeft = true;
      return onLeft(why);
    });
    // Whoever comes next waits for this call, or, if it left, for what this one waited for.
    const over = (): unknown => (hasLeft ? before : undefined);
    this.#last = result.then(over, over);
    return result;
  }
}
