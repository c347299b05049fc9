import type { FakeCall } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import type { Leadership } from "../src/index.js";
import { COORDINATION, end, LEASE_MS, leases, type Member, type MemberOptions, ROLE, values, World } from "./world.js";

const MODES = ["append", "transaction"] as const;
const record = (value: string) => ({ topic: "commands", key: "k", value, partition: 0 });

const isLeaseRecord = ({ ask }: FakeCall): boolean => (ask as { topic?: string }).topic === COORDINATION.topic;

/** What became of calls: how each was told, in their order. */
const told = (calls: readonly Promise<unknown>[]): Promise<readonly string[]> =>
  Promise.all(
    calls.map((call) =>
      call.then(
        () => "done",
        (error: { code?: string }) => error.code ?? String(error),
      ),
    ),
  );

const WRITES = Array.from({ length: 8 }, (_, index) => String(index));

/** A leader with accepted writes that take more than two leases together, and a standby that waits for its turn. */
async function longDrain(mode: (typeof MODES)[number], options: MemberOptions = {}) {
  const world = new World(mode);
  const [a, b] = [world.member("a", options), world.member("b")];
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  const next = b.client.acquire(ROLE, b.id);
  await world.advance(100);
  world.cluster.faults.inject({
    api: "Produce",
    clientId: "a",
    times: 1_000,
    action: { kind: "delay", ms: LEASE_MS / 3 },
    matches: (call) => !isLeaseRecord(call),
  });
  const writes = told(WRITES.map((value) => leadership.write(record(value))));
  return { world, a, b, leadership, next, writes };
}

const goodbyes: readonly [string, (leadership: Leadership, heir: Member) => Promise<void>][] = [
  ["resign", (leadership) => leadership.resign()],
  ["transferTo", (leadership, heir) => leadership.transferTo(heir.id)],
];

describe.each(MODES)("a drain that is longer than a lease (lease records by %s)", (mode) => {
  it.each(goodbyes)("keeps the lease, so that no standby takes the role from under it (%s)", async (_, leave) => {
    for (const autoRenew of [true, false]) {
      const { world, a, b, leadership, next, writes } = await longDrain(mode, { autoRenew });
      const startedAtMs = world.clock.monotonicMs();
      const left = leave(leadership, b);
      expect(await world.settle(writes)).toEqual(WRITES.map(() => "done"));
      expect(world.clock.monotonicMs() - startedAtMs).toBeGreaterThan(2 * LEASE_MS);
      expect(world.count("InitProducerId", "b")).toBe(0);
      await world.settle(left);
      expect((await world.settle(next)).isLeader).toBe(true);
      expect(values(world)).toEqual(WRITES);
      await end(world, a, b);
    }
  });

  it("ends where its renewals get lost: what had not begun is refused, and the standby leads after the lease", async () => {
    const { world, a, b, leadership, next, writes } = await longDrain(mode);
    world.cluster.faults.inject({
      api: "Produce",
      clientId: "a",
      times: 1_000,
      action: { kind: "drop-request" },
      matches: isLeaseRecord,
    });
    const left = told([leadership.resign()]);
    const outcomes = await world.settle(writes);
    const done = outcomes.filter((outcome) => outcome === "done").length;
    expect(done).toBeLessThan(4);
    expect(outcomes.slice(done + 1)).toEqual(WRITES.slice(done + 1).map(() => "NOT_LEADER"));
    expect(await world.settle(left)).toEqual(["done"]);
    expect((await world.settle(next)).isLeader).toBe(true);
    expect(values(world)).toEqual(WRITES.slice(0, done));
    await end(world, a, b);
  });

  it("ends where a rival takes over: the write under way is fenced, and no later one is sent", async () => {
    const { world, a, b, leadership, next, writes } = await longDrain(mode);
    const left = told([leadership.resign()]);
    await world.advance(LEASE_MS + 10);
    world.cluster.mint(ROLE);
    const outcomes = await world.settle(writes);
    const done = outcomes.filter((outcome) => outcome === "done").length;
    expect(done).toBeGreaterThan(1);
    expect(outcomes.slice(done)).toEqual(WRITES.slice(done).map(() => "FENCED"));
    expect(await world.settle(left)).toEqual(["done"]);
    expect(values(world)).toEqual(WRITES.slice(0, done));
    expect((await world.settle(next)).isLeader).toBe(true);
    await end(world, a, b);
  });

  it("that exceeds the resignation's limit is cut short: what had not begun is refused, and nothing renews", async () => {
    const { world, a, b, leadership, next, writes } = await longDrain(mode);
    const left = told([leadership.resign({ timeoutMs: LEASE_MS / 2 })]);
    expect(await world.settle(left)).toEqual(["TIMEOUT"]);
    const outcomes = await world.settle(writes);
    const done = outcomes.filter((outcome) => outcome === "done").length;
    expect(done).toBeLessThanOrEqual(2);
    expect(outcomes.slice(done)).toEqual(WRITES.slice(done).map(() => "NOT_LEADER"));
    await world.settle(leadership.resign());
    const startedAtMs = world.clock.monotonicMs();
    expect((await world.settle(next)).isLeader).toBe(true);
    expect(world.clock.monotonicMs() - startedAtMs).toBeLessThan(LEASE_MS / 6);
    expect(values(world)).toEqual(WRITES.slice(0, done));
    await end(world, a, b);
  });

  it("is cut short by the limit of a resignation that came later, too", async () => {
    const { world, a, b, leadership, next, writes } = await longDrain(mode);
    const first = leadership.resign();
    await world.advance(10);
    const startedAtMs = world.clock.monotonicMs();
    expect(await world.settle(told([leadership.resign({ timeoutMs: LEASE_MS / 2 })]))).toEqual(["TIMEOUT"]);
    expect(world.clock.monotonicMs() - startedAtMs).toBe(LEASE_MS / 2);
    expect((await world.settle(writes)).slice(2)).toEqual(WRITES.slice(2).map(() => "NOT_LEADER"));
    await world.settle(first);
    expect((await world.settle(next)).isLeader).toBe(true);
    await end(world, a, b);
  });

  it("is not ended by the limit of another resignation that is under way: the release goes out after it", async () => {
    const { world, a, b, leadership, next } = await longDrain(mode);
    const both = told([leadership.resign({ timeoutMs: LEASE_MS / 2 }), leadership.resign()]);
    expect(await world.settle(both)).toEqual(["TIMEOUT", "done"]);
    const startedAtMs = world.clock.monotonicMs();
    expect((await world.settle(next)).isLeader).toBe(true);
    expect(world.clock.monotonicMs() - startedAtMs).toBeLessThan(LEASE_MS / 6);
    await end(world, a, b);
  });

  it("has one limit with the look for the heir before it, and the call is named when it is reached", async () => {
    const { world, a, b, leadership, next } = await longDrain(mode);
    const [c, d] = [world.member("c"), world.member("d")];
    const reads = world.cluster.faults.inject({ api: "Fetch", clientId: "a", action: { kind: "hold-answer" } });
    const others = told([next, ...[c, d].map(({ client, id }) => client.acquire(ROLE, id))]);
    await Promise.all([reads.hit, world.advance(50)]);
    const startedAtMs = world.clock.monotonicMs();
    const handover = leadership.transferTo(d.id, { timeoutMs: 400 });
    handover.catch(() => undefined);
    await world.advance(300);
    expect(leadership.isLeader).toBe(true);
    reads.release();
    await expect(world.settle(handover)).rejects.toMatchObject({
      code: "TIMEOUT",
      message: "transferTo did not finish within timeoutMs 400",
    });
    expect(world.clock.monotonicMs() - startedAtMs).toBe(400);
    expect(leadership.loss?.reason).toBe("resigned");
    await end(world, a, b, c, d);
    await others;
  });

  it("without a second resignation after that, ends with the lease", async () => {
    const { world, a, b, leadership, next } = await longDrain(mode);
    expect(await world.settle(told([leadership.resign({ timeoutMs: LEASE_MS / 2 })]))).toEqual(["TIMEOUT"]);
    const startedAtMs = world.clock.monotonicMs();
    expect((await world.settle(next)).isLeader).toBe(true);
    expect(world.clock.monotonicMs() - startedAtMs).toBeLessThan(1.5 * LEASE_MS);
    await end(world, a, b);
  });

  it("is cut short by close after one lease, and the release follows at once", async () => {
    const { world, a, b, leadership, next, writes } = await longDrain(mode);
    const startedAtMs = world.clock.monotonicMs();
    await world.settle(leadership.close());
    expect((await world.settle(next)).isLeader).toBe(true);
    const tookMs = world.clock.monotonicMs() - startedAtMs;
    expect(tookMs).toBeGreaterThanOrEqual(LEASE_MS);
    // The write that was under way ends first.
    expect(tookMs).toBeLessThan(1.5 * LEASE_MS);
    const outcomes = await world.settle(writes);
    const done = outcomes.filter((outcome) => outcome === "done").length;
    expect(done).toBeGreaterThan(2);
    expect(outcomes.slice(done)).toEqual(WRITES.slice(done).map(() => "NOT_LEADER"));
    expect(values(world)).toEqual(WRITES.slice(0, done));
    await end(world, a, b);
  });

  it("is cut short by the close of the client in time for the release", async () => {
    const { world, a, b, next, writes } = await longDrain(mode);
    await world.settle(a.client.close());
    const startedAtMs = world.clock.monotonicMs();
    expect((await world.settle(next)).isLeader).toBe(true);
    expect(world.clock.monotonicMs() - startedAtMs).toBeLessThan(LEASE_MS / 6);
    expect(new Set(await world.settle(writes))).toEqual(new Set(["done", "NOT_LEADER"]));
    await end(world, b);
  });
});

it.each(MODES)("nothing of the term follows its release in the log, whatever is due meanwhile (%s)", async (mode) => {
  const world = new World(mode);
  const a = world.member("a");
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  await world.advance(LEASE_MS / 4);
  const answer = world.cluster.faults.inject({
    api: "Produce",
    clientId: "a",
    action: { kind: "hold-answer" },
    matches: isLeaseRecord,
  });
  const left = leadership.resign();
  await Promise.all([answer.hit, world.advance(10)]);
  const renewal = told([leadership.renew()]);
  await world.advance(LEASE_MS / 2);
  answer.release();
  await world.settle(left);
  expect(await world.settle(renewal)).toEqual(["NOT_LEADER"]);
  await world.advance(LEASE_MS);
  expect(leases(world)).toHaveLength(2);
  expect(leases(world).at(-1)?.deadlineMs).toBeLessThan(leases(world).at(-1)?.grantedAtMs ?? 0n);
  await end(world, a);
});
