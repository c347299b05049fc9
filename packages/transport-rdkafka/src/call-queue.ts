import type { Deadline } from "./deadline.js";

/** Runs calls one at a time in their order. A call that waits may leave; one that began runs to its end. */
export class CallQueue {
  #last: Promise<unknown> = Promise.resolve();

  /** @param onLeft gives the result of a call whose deadline ended while it waited. */
  async run<T>(deadline: Deadline, onLeft: (why: Error) => T, work: () => Promise<T>): Promise<T> {
    const previous = this.#last;
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    // The next call waits for this one and, if this one leaves, for the one before it.
    this.#last = ended.then(() => previous);
    try {
      try {
        await deadline.race(previous);
      } catch (why) {
        return onLeft(why as Error);
      }
      return await work();
    } finally {
      end();
    }
  }
}
