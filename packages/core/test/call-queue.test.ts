import { CallQueue, type Clock, Deadline } from "@krabka/core";
import { describe, expect, it } from "vitest";

const STILL: Clock = { wallMs: () => 0, monotonicMs: () => 0, setTimer: () => ({ cancel: () => undefined }) };

const deferred = () => {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
};

const deadline = (signal?: AbortSignal): Deadline => new Deadline(STILL, { signal }, 1000);

describe("call queue", () => {
  it("begins a call only after the one before has ended", async () => {
    const queue = new CallQueue();
    const log: string[] = [];
    const gate = deferred();
    const first = queue.run(deadline(), Promise.reject, async () => {
      await gate.promise;
      log.push("first");
    });
    const second = queue.run(deadline(), Promise.reject, async () => {
      log.push("second");
    });
    gate.resolve();
    await Promise.all([first, second]);
    expect(log).toEqual(["first", "second"]);
  });

  it("goes on after a call that failed", async () => {
    const queue = new CallQueue();
    const failed = queue.run(deadline(), Promise.reject, () => Promise.reject(new Error("no")));
    const next = queue.run(deadline(), Promise.reject, async () => "next");
    await expect(failed).rejects.toThrow("no");
    expect(await next).toBe("next");
  });

  it("lets a waiting call leave at its own end, without running it and without letting the next one overtake", async () => {
    const queue = new CallQueue();
    const gate = deferred();
    const log: string[] = [];
    const first = queue.run(deadline(), Promise.reject, async () => {
      await gate.promise;
      log.push("first");
    });
    const control = new AbortController();
    const leaving = queue.run(
      deadline(control.signal),
      () => "left",
      async () => {
        log.push("never");
        return "ran";
      },
    );
    const last = queue.run(deadline(), Promise.reject, async () => {
      log.push("last");
    });
    control.abort();
    expect(await leaving).toBe("left");
    expect(log).toEqual([]);
    gate.resolve();
    await Promise.all([first, last]);
    expect(log).toEqual(["first", "last"]);
  });
});
