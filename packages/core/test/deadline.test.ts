import { type Clock, Deadline, KrabkaError } from "@krabka/core";
import { describe, expect, it } from "vitest";

/** Stands still until it is told, and counts the timers that are set. */
class StillClock implements Clock {
  readonly timers = new Set<{ readonly atMs: number; readonly fire: () => void }>();
  #nowMs = 0;

  wallMs = () => this.#nowMs;
  monotonicMs = () => this.#nowMs;

  setTimer(delayMs: number, fire: () => void) {
    const timer = { atMs: this.#nowMs + delayMs, fire };
    this.timers.add(timer);
    return { cancel: () => void this.timers.delete(timer) };
  }

  advance(ms: number): void {
    this.#nowMs += ms;
    for (const timer of [...this.timers]) {
      if (timer.atMs > this.#nowMs || !this.timers.delete(timer)) continue;
      timer.fire();
    }
  }
}

const forever = new Promise<never>(() => undefined);

describe("a deadline", () => {
  it("ends a wait with TIMEOUT once its time has passed, not before", async () => {
    const clock = new StillClock();
    const deadline = new Deadline(clock, { timeoutMs: 100 }, 1);
    const wait = deadline.race(forever);
    clock.advance(99);
    expect(deadline.ended).toBeUndefined();
    clock.advance(1);
    await expect(wait).rejects.toMatchObject({ code: "TIMEOUT" });
    await expect(deadline.pause(1)).rejects.toMatchObject({ code: "TIMEOUT" });
  });

  it("ends a wait and a pause with ABORTED at the caller's signal, and its cause is the signal's reason", async () => {
    const control = new AbortController();
    const deadline = new Deadline(new StillClock(), { signal: control.signal }, 100);
    const waits = [deadline.race(forever), deadline.pause(50)];
    control.abort(new Error("enough"));
    for (const wait of waits) {
      await expect(wait).rejects.toMatchObject({
        code: "ABORTED",
        cause: expect.objectContaining({ message: "enough" }),
      });
    }
  });

  it("settles as the work does, and leaves no timer behind", async () => {
    const clock = new StillClock();
    const deadline = new Deadline(clock, undefined, 100);
    expect(await deadline.race(Promise.resolve("done"))).toBe("done");
    await expect(deadline.race(Promise.reject(new Error("failed")))).rejects.toThrow("failed");
    const pause = deadline.pause(10);
    clock.advance(10);
    await pause;
    expect(clock.timers.size).toBe(0);
  });

  it("within another one ends no later, and knows what that one waits for", () => {
    const clock = new StillClock();
    const outer = new Deadline(clock, undefined, 100);
    expect(outer.within(30).remainingMs).toBe(30);
    expect(outer.within(300).remainingMs).toBe(100);
    outer.waitsFor({ reason: new KrabkaError("UNREACHABLE", "no broker") });
    const inner = outer.within(300);
    clock.advance(100);
    expect(inner.ended).toMatchObject({ code: "UNREACHABLE", cause: expect.objectContaining({ code: "TIMEOUT" }) });
  });

  it("takes no time limit that a timer can't keep", () => {
    for (const timeoutMs of [0, -1, Number.NaN, 2 ** 31]) {
      expect(() => new Deadline(new StillClock(), { timeoutMs }, 1)).toThrow(/timeoutMs must be in/);
    }
  });
});
