import { describe, expect, it } from "vitest";
import { CallQueue } from "../src/call-queue.js";
import { Deadline } from "../src/deadline.js";
import { systemClock } from "../src/system-clock.js";

const limit = (signal?: AbortSignal) => new Deadline(systemClock, { signal }, 60_000);
const left = () => "left";

describe("the queue of a session", () => {
  it("runs calls one at a time, in their order, also after one that failed", async () => {
    const queue = new CallQueue();
    const order: string[] = [];
    const call = (name: string) =>
      queue.run(limit(), left, async () => {
        order.push(`${name} begins`);
        await new Promise(setImmediate);
        order.push(`${name} ends`);
        if (name === "b") throw new Error("b failed");
        return name;
      });
    const results = await Promise.allSettled([call("a"), call("b"), call("c")]);
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(order).toEqual(["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  });

  it("lets a waiting call leave, and the next one still waits for the first", async () => {
    const queue = new CallQueue();
    const giveUp = new AbortController();
    let finish = (): void => {};
    const first = queue.run(
      limit(),
      left,
      () =>
        new Promise<string>((resolve) => {
          finish = () => resolve("first");
        }),
    );
    const second = queue.run(limit(giveUp.signal), left, async () => "second");
    let thirdRan = false;
    const third = queue.run(limit(), left, async () => {
      thirdRan = true;
      return "third";
    });
    giveUp.abort();
    expect(await second).toBe("left");
    await new Promise(setImmediate);
    expect(thirdRan).toBe(false);
    finish();
    expect(await Promise.all([first, third])).toEqual(["first", "third"]);
  });
});
