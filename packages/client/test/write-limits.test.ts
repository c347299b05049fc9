import { KafkaCode } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { COORDINATION, end, LEASE_MS, leases, ROLE, values, World } from "./world.js";

const record = (value: string) => ({ topic: "commands", key: "k", value, partition: 0 });

/** A leader whose next write has to wait for a new epoch, because the answer to a commit was lost on the way. */
async function owingAnEpoch(mode: "append" | "transaction") {
  const world = new World(mode);
  const a = world.member("a", { autoRenew: false });
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  world.cluster.faults.inject({ api: "EndTxn", clientId: "a", action: { kind: "lose-answer" } });
  await world.settle(leadership.write(record("1")));
  const epoch = world.cluster.faults.inject({ api: "InitProducerId", clientId: "a", action: { kind: "hold-answer" } });
  return { world, a, leadership, epoch };
}

/** The code with which a call rejects, and how long it took. */
async function told(world: World, call: Promise<unknown>) {
  const startedAtMs = world.clock.monotonicMs();
  const code = await world.settle(
    call.then(
      () => "resolved",
      (error: { code?: string }) => error.code,
    ),
  );
  return { code, tookMs: world.clock.monotonicMs() - startedAtMs };
}

describe.each(["append", "transaction"] as const)("the limit of a write (lease records by %s)", (mode) => {
  it.each([
    ["timeoutMs", "TIMEOUT"],
    ["signal", "ABORTED"],
  ] as const)("holds while it waits for a new epoch, and nothing of it is ever visible (%s)", async (bound, code) => {
    const { world, a, leadership, epoch } = await owingAnEpoch(mode);
    const abort = new AbortController();
    a.clock.setTimer(100, () => abort.abort());
    const limits = bound === "signal" ? { signal: abort.signal } : { timeoutMs: 100 };
    expect(await told(world, leadership.write(record("never"), limits))).toEqual({ code, tookMs: 100 });
    const next = leadership.write(record("2"));
    await world.advance(50);
    expect(values(world)).toEqual(["1"]);
    epoch.release();
    await world.settle(next);
    await world.advance(LEASE_MS / 2);
    expect(values(world)).toEqual(["1", "2"]);
    expect(leadership.isLeader).toBe(true);
    await end(world, a);
  });

  it("holds while it is settled with a new epoch: it is unknown then, and the leadership goes on", async () => {
    const world = new World(mode);
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    const { token } = leadership;
    world.cluster.faults.inject({ api: "EndTxn", clientId: "a", action: { kind: "error", code: -1 } });
    const epoch = world.cluster.faults.inject({
      api: "InitProducerId",
      clientId: "a",
      action: { kind: "hold-answer" },
    });
    const call = leadership.write(record("1"), { timeoutMs: 300 });
    expect(await told(world, call)).toEqual({ code: "UNKNOWN_OUTCOME", tookMs: 300 });
    epoch.release();
    await world.settle(leadership.write(record("2")));
    expect(values(world).at(-1)).toBe("2");
    expect(leadership.token.compareTo(token)).toBe(1);
    await end(world, a);
  });

  it("and that of a resignation hold in the same wait; the resignation can be repeated", async () => {
    const { world, a, leadership, epoch } = await owingAnEpoch(mode);
    expect(await told(world, leadership.resign({ timeoutMs: 100 }))).toEqual({ code: "TIMEOUT", tookMs: 100 });
    epoch.release();
    await world.settle(leadership.resign());
    expect(leases(world).at(-1)?.deadlineMs).toBeLessThan(BigInt(world.clock.wallMs()));
    await end(world, a);
  });

  it("a new epoch that comes after the lease ran out is not granted anything", async () => {
    const { world, a, leadership, epoch } = await owingAnEpoch(mode);
    const write = leadership.write(record("never"));
    write.catch(() => undefined);
    await Promise.all([epoch.hit, world.advance(50)]);
    const before = leases(world).length;
    a.clock.freeze();
    await world.advance(LEASE_MS);
    epoch.release();
    await world.advance(20);
    a.clock.resume();
    await expect(world.settle(write)).rejects.toMatchObject({ code: "NOT_LEADER" });
    await world.advance(20);
    expect(leases(world)).toHaveLength(before);
    expect(values(world)).toEqual(["1"]);
    await end(world, a);
  });
});

const isOfLease = (ask: object): boolean => {
  const { topic, partitions = [] } = ask as { topic?: string; partitions?: readonly { topic: string }[] };
  return [topic, ...partitions.map((one) => one.topic)].includes(COORDINATION.topic);
};

it.each(["append", "transaction"] as const)(
  "many writes that wait for a new epoch in vain take few epochs (lease records by %s)",
  async (mode) => {
    const { world, a, leadership, epoch } = await owingAnEpoch(mode);
    epoch.release();
    for (const api of ["Produce", "AddPartitionsToTxn"] as const) {
      world.cluster.faults.inject({
        api,
        clientId: "a",
        times: 10_000,
        action: { kind: "error", code: KafkaCode.TOPIC_AUTHORIZATION_FAILED },
        matches: ({ ask }) => isOfLease(ask),
      });
    }
    const before = world.count("InitProducerId", "a");
    const writes = Array.from({ length: 500 }, () => told(world, leadership.write(record("never"))));
    const codes = new Set((await Promise.all(writes)).map(({ code }) => code));
    expect(codes).toEqual(new Set(["NOT_COMMITTED", "NOT_LEADER"]));
    expect(world.count("InitProducerId", "a") - before).toBeLessThan(40);
    expect(values(world)).toEqual(["1"]);
    await end(world, a);
  },
);
