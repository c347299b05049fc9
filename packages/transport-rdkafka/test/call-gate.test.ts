import { Deadline } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { CallGate, slotsFor } from "../src/call-gate.js";
import { systemClock } from "../src/system-clock.js";

const limit = (signal?: AbortSignal) => new Deadline(systemClock, { signal }, 60_000);
const settle = () => new Promise(setImmediate);

describe("the gate of native calls", () => {
  it("lets as many in as it has slots, and the next when one leaves", async () => {
    const gate = new CallGate(2);
    const leave = await gate.enter("quick", limit());
    await gate.enter("quick", limit());
    let third = false;
    const entered = gate.enter("quick", limit()).then(() => {
      third = true;
    });
    await settle();
    expect(third).toBe(false);
    leave();
    leave();
    await entered;
    let fourth = false;
    void gate.enter("quick", limit()).then(() => {
      fourth = true;
    });
    await settle();
    expect(fourth).toBe(false);
  });

  it("keeps a slot from patient calls, and lets quick ones go before them", async () => {
    const gate = new CallGate(2);
    await gate.enter("patient", limit());
    const order: string[] = [];
    const patient = gate.enter("patient", limit()).then((leave) => {
      order.push("patient");
      return leave;
    });
    await settle();
    expect(order).toEqual([]);
    const leave = await gate.enter("quick", limit());
    const quick = gate.enter("quick", limit()).then((left) => {
      order.push("quick");
      left();
    });
    leave();
    await quick;
    expect(order).toEqual(["quick"]);
    void patient;
  });

  it("lets patient calls in where there is one slot only", async () => {
    const gate = new CallGate(1);
    (await gate.enter("patient", limit()))();
    (await gate.enter("patient", undefined))();
  });

  it("forgets a call that gave up while it waited", async () => {
    const gate = new CallGate(1);
    const leave = await gate.enter("quick", limit());
    const giveUp = new AbortController();
    const waiting = gate.enter("quick", limit(giveUp.signal));
    giveUp.abort();
    await expect(waiting).rejects.toMatchObject({ code: "ABORTED" });
    await expect(gate.enter("quick", limit(giveUp.signal))).rejects.toMatchObject({ code: "ABORTED" });
    leave();
    (await gate.enter("quick", limit()))();
  });

  it("leaves one of libuv's threads to the process", () => {
    expect([undefined, "1", "2", "4", "64", "0", "5000", "nonsense"].map(slotsFor)).toEqual([
      3, 1, 1, 3, 63, 1, 1023, 1,
    ]);
  });
});
