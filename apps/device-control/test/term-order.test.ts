import { expect, it } from "vitest";
import { faultsOf, render, type Summary } from "../src/summary.js";
import { checkTermOrder, type LoggedCommand } from "../src/term-order.js";

const command = (partition: number, offset: bigint, token: string | undefined): LoggedCommand => ({
  partition,
  offset,
  token,
});

it("a log in which terms only grow within each partition has no violation", () => {
  const log = [command(0, 0n, "3:0:0"), command(0, 2n, "7:0:1"), command(1, 0n, "3:0:0"), command(0, 1n, "3:0:0")];
  expect(checkTermOrder(log)).toEqual([]);
});

it("a record of an older term behind one of a newer term is a violation, with its place", () => {
  const log = [command(0, 0n, "3:0:0"), command(0, 1n, "7:0:1"), command(0, 2n, "3:0:0"), command(0, 3n, "7:0:1")];
  expect(checkTermOrder(log)).toEqual([{ partition: 0, offset: 2n, fault: "token 3:0:0 follows the later 7:0:1" }]);
});

it("a lower producer id under a later term is no violation", () => {
  expect(checkTermOrder([command(0, 0n, "40:2000:32766"), command(0, 1n, "58:1013:0")])).toEqual([]);
});

it("a record without token is a violation", () => {
  expect(checkTermOrder([command(2, 9n, undefined)])).toEqual([
    { partition: 2, offset: 9n, fault: "carries no token" },
  ]);
});

const good: Summary = {
  leaseMs: 2_000,
  reigns: [{ leader: "candidate-1", token: "3:0:0", after: "the start", takeoverMs: 1 }],
  written: 2,
  dispatched: 2,
  zombie: { believesToLead: true, write: "FENCED", dispatch: "REFUSED" },
  logged: 2,
  violations: [],
};

it("a run that kept all promises has no faults", () => {
  expect(faultsOf(good)).toEqual([]);
  expect(render(good)).toContain("no older term follows a newer one");
});

it.each([
  [
    "an older term behind a newer one",
    { violations: [{ partition: 0, offset: 2n, fault: "token 3:0:0 follows 7:0:1" }] },
  ],
  ["a stale write that was accepted", { zombie: { ...good.zombie, write: "accepted" } }],
  ["a stale command that a device took", { zombie: { ...good.zombie, dispatch: "accepted" } }],
  ["a suspended leader that noticed by itself", { zombie: { ...good.zombie, believesToLead: false } }],
  ["an acknowledged command that is not in the log", { logged: 1 }],
] as const)("%s is a fault", (_, change) => {
  expect(faultsOf({ ...good, ...change })).toHaveLength(1);
});
