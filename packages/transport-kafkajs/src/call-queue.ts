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
    let state: "waiting" | "begun" | "left" = "waiting";
    const previous = this.#last;
    const turn = new Promise<void>((resolve, reject) => {
      deadline.race(previous).then(
        () => resolve(),
        (why: Error) => reject(why),
      );
    });
    const result = turn.then(
      () => {
        state = "begun";
        return work();
      },
      (why: Error) => {
        state = "left";
        return onLeft(why);
      },
    );
    // The next call waits for this one only if it began; one that left stands aside.
    this.#last = result.then(
      () => (state === "left" ? previous : undefined),
      () => (state === "left" ? previous : undefined),
    );
    return result;
  }
}
