import { ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";

describe("ManualClock", () => {
  it("moves both clocks by advance, and only then", async () => {
    const clock = new ManualClock({ wallMs: 1_000 });
    expect([clock.wallMs(), clock.monotonicMs()]).toEqual([1_000, 0]);
    await clock.advance(250);
    expect([clock.wallMs(), clock.monotonicMs()]).toEqual([1_250, 250]);
  });

  it("fires timers in the order of their instants, and of one instant in the order in which they were set", async () => {
    const clock = new ManualClock();
    const fired: string[] = [];
    clock.setTimer(20, () => fired.push("late"));
    clock.setTimer(10, () => fired.push("first"));
    clock.setTimer(10, () => fired.push("second"));
    await clock.advance(9);
    expect(fired).toEqual([]);
    await clock.advance(11);
    expect(fired).toEqual(["first", "second", "late"]);
  });

  it("shows a timer the instant at which it is due", async () => {
    const clock = new ManualClock();
    let firedAtMs = 0;
    clock.setTimer(30, () => {
      firedAtMs = clock.monotonicMs();
    });
    await clock.advance(100);
    expect(firedAtMs).toBe(30);
    expect(clock.monotonicMs()).toBe(100);
  });

  it("runs promise jobs between timers, so that a loop of waits makes all its rounds in one advance", async () => {
    const clock = new ManualClock();
    const sleep = (ms: number) => new Promise<void>((resolve) => clock.setTimer(ms, resolve));
    let rounds = 0;
    const loop = async () => {
      for (; rounds < 10; rounds++) await sleep(10).then(() => Promise.resolve());
    };
    void loop();
    await clock.advance(100);
    expect(rounds).toBe(10);
  });

  it("does not fire a timer that was cancelled, also by one of the same instant", async () => {
    const clock = new ManualClock();
    let fired = 0;
    clock.setTimer(10, () => second.cancel());
    const second = clock.setTimer(10, () => {
      fired += 1;
    });
    await clock.advance(10);
    second.cancel();
    expect(fired).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });

  it("steps the wall clock alone", async () => {
    const clock = new ManualClock({ wallMs: 1_000 });
    let fired = false;
    clock.setTimer(10, () => {
      fired = true;
    });
    clock.stepWall(3_600_000);
    await clock.advance(9);
    expect([clock.wallMs(), clock.monotonicMs(), fired]).toEqual([3_601_009, 9, false]);
    clock.stepWall(-7_200_000);
    expect(clock.wallMs()).toBe(-3_598_991);
  });

  it("holds the monotonic clock and the timers of a suspended machine, while others go on", async () => {
    const clock = new ManualClock();
    const sleeper = clock.fork();
    const fired: string[] = [];
    sleeper.setTimer(10, () => fired.push("sleeper"));
    clock.setTimer(10, () => fired.push("other"));
    sleeper.suspend();
    await clock.advance(1_000);
    expect(fired).toEqual(["other"]);
    expect([sleeper.monotonicMs(), sleeper.wallMs() - clock.wallMs()]).toEqual([0, 0]);
    sleeper.resume();
    await clock.advance(9);
    expect(fired).toEqual(["other"]);
    await clock.advance(1);
    expect(fired).toEqual(["other", "sleeper"]);
    expect(sleeper.monotonicMs()).toBe(10);
  });

  it("fires what became due during a freeze after it, with both clocks moved on", async () => {
    const clock = new ManualClock();
    const frozen = clock.fork();
    let firedAtMs = -1;
    frozen.setTimer(10, () => {
      firedAtMs = frozen.monotonicMs();
    });
    frozen.freeze();
    await clock.advance(500);
    expect(firedAtMs).toBe(-1);
    frozen.resume();
    await clock.advance(0);
    expect(firedAtMs).toBe(500);
  });

  it("settles a promise by jumping from timer to timer", async () => {
    const clock = new ManualClock();
    const days = new Promise<string>((resolve) => clock.setTimer(86_400_000 * 20, () => resolve("done")));
    expect(await clock.settle(days, 86_400_000 * 30)).toBe("done");
    expect(clock.monotonicMs()).toBe(86_400_000 * 20);
  });

  it("says so when nothing is left that could settle a promise", async () => {
    const clock = new ManualClock();
    await expect(clock.settle(new Promise(() => {}))).rejects.toThrow("no timer is left");
  });

  it("runs by itself until it is stopped", async () => {
    const clock = new ManualClock();
    const stop = clock.run();
    for (let round = 0; round < 5; round++) await new Promise<void>((resolve) => clock.setTimer(1_000, resolve));
    expect(clock.monotonicMs()).toBe(5_000);
    stop();
    clock.setTimer(1, () => {});
    await new Promise<void>((resolve) => setImmediate(resolve));
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(clock.monotonicMs()).toBe(5_000);
  });

  it("refuses delays that Node's timers would turn into 1 ms", () => {
    const clock = new ManualClock();
    for (const delayMs of [-1, 2 ** 31, Number.NaN])
      expect(() => clock.setTimer(delayMs, () => {})).toThrow(RangeError);
  });
});
