import { describe, expect, it } from "vitest";
import { SerialQueue } from "../src/serial-queue.js";

describe("a serial queue", () => {
  it("when it is closed drops what waits, refuses what comes, and lets go on what runs", async () => {
    const queue = new SerialQueue();
    const why = new Error("lost");
    let finish: (value: string) => void = () => {};
    const runs = queue.run(() => new Promise<string>((resolve) => (finish = resolve)));
    const limit = new AbortController();
    const waits = queue.run(async () => "never", { signal: limit.signal });
    const urgent = queue.run(async () => "never", { priority: "urgent" });
    queue.close(why);
    queue.close(new Error("a second reason"));
    limit.abort();
    const settled = await Promise.allSettled([waits, urgent, queue.run(async () => "never")]);
    expect(settled).toEqual(Array(3).fill({ status: "rejected", reason: why }));
    finish("done");
    expect(await runs).toBe("done");
    await queue.idle();
    expect(queue.waiting).toBe(0);
  });

  it("runs urgent tasks before the others that wait, and drops the one whose signal fires", async () => {
    const queue = new SerialQueue();
    const order: string[] = [];
    const task = (name: string) => async () => void order.push(name);
    const limit = new AbortController();
    const first = queue.run(task("first"));
    const dropped = queue.run(task("dropped"), { signal: limit.signal });
    const normal = queue.run(task("normal"));
    const urgent = queue.run(task("urgent"), { priority: "urgent" });
    limit.abort(new Error("given up"));
    await expect(dropped).rejects.toThrow("given up");
    await Promise.all([first, normal, urgent]);
    expect(order).toEqual(["first", "urgent", "normal"]);
  });

  it("starts the next task only after the work that the last one left behind, however that ends", async () => {
    const queue = new SerialQueue();
    let fail = (_: Error) => {};
    const left = new Promise<void>((_, reject) => {
      fail = reject;
    });
    await queue.run(async () => queue.hold(left));
    let begun = false;
    const next = queue.run(async () => {
      begun = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(begun).toBe(false);
    fail(new Error("not that it matters"));
    await next;
    await queue.idle();
  });
});
