import { encodeEntry, KrabkaError, Role, RoleState } from "@krabka/core";
import { type FakeCall, FakeCluster, FakeTransport, KafkaCode, ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { CoordinationClient, DuplicateMemberError, type Leadership, MemberId } from "../src/index.js";
import { recordsOf } from "./simulation/coordination-log.js";
import { COORDINATION, end, LEASE_MS, type Member, ROLE, World } from "./world.js";

const MODES = ["append", "transaction"] as const;
const A = MemberId.of("a");
const B = MemberId.of("b");
const record = (value: string) => ({ topic: "commands", key: "k", value, partition: 0 });

const stateOf = (cluster: FakeCluster) => RoleState.fold(ROLE, recordsOf(cluster.read(COORDINATION)));

/** The first EndTxn is executed and not answered, so that a write with a short limit is unknown at first. */
const loseCommitAnswer = (world: World) =>
  world.cluster.faults.inject({ api: "EndTxn", clientId: "a", action: { kind: "drop-answer" } });

const refuseLeaseRecord = (world: World) =>
  world.cluster.faults.inject({
    api: "Produce",
    clientId: "a",
    action: { kind: "error", code: 19 },
    matches: ({ ask }) => (ask as { topic?: string }).topic === COORDINATION.topic,
  });

async function expectCurrentToken(world: World, a: Member, { token }: Leadership): Promise<void> {
  const status = await world.settle(a.client.describe(ROLE));
  expect(status.isAuthoritative(token)).toBe(true);
}

describe("the token", () => {
  it("does not move back when a transaction that carried a renewal is settled after a new epoch", async () => {
    const world = new World("transaction");
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    await world.advance(LEASE_MS / 2);
    // Leaves open whether it was executed, so that the write is settled with the next epoch, within its own limit.
    world.cluster.faults.inject({ api: "EndTxn", clientId: "a", action: { kind: "error", code: -1 } });
    const before = leadership.token;
    await world.settle(leadership.write([record("x")]));
    expect(leadership.token.compareTo(before)).toBe(1);
    await expectCurrentToken(world, a, leadership);
    await end(world, a);
  });

  it.each(MODES)("names the newest pair also after a new epoch whose grant was refused (%s)", async (mode) => {
    const world = new World(mode);
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    loseCommitAnswer(world);
    refuseLeaseRecord(world);
    const first = leadership.write([record("x")], { timeoutMs: 200 });
    await expect(world.settle(first)).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await world.settle(leadership.write([record("y")]));
    await expectCurrentToken(world, a, leadership);
    await end(world, a);
  });
});

describe("a leader", () => {
  it("is not revived by a renewal that is acknowledged past the deadline", async () => {
    const world = new World();
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    await world.advance(LEASE_MS / 2);
    const answer = world.cluster.faults.inject({ api: "Produce", clientId: "a", action: { kind: "hold-answer" } });
    const told = leadership.renew().catch((error: unknown) => error);
    await Promise.all([answer.hit, world.advance(10)]);
    // The process stands still past the deadline, and the answer is there before any timer has fired.
    a.clock.freeze();
    await world.advance(LEASE_MS / 2 + 100);
    expect(leadership.isLeader).toBe(false);
    answer.release();
    await world.advance(10);
    expect(leadership.isLeader).toBe(false);
    a.clock.resume();
    expect(await world.settle(told)).toMatchObject({ code: "NOT_LEADER" });
    expect(leadership.loss?.reason).toBe("expired");
    await end(world, a);
  });

  it("that a process with the same member id replaces is told so, however it learns of it", async () => {
    const world = new World();
    const a = world.member("a");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    // Another machine, whose clock is not the same to the millisecond; it minted and is about to write its grant.
    const other = world.member("other", { wallAheadMs: 7 });
    const grant = world.cluster.faults.inject({
      api: "Produce",
      clientId: "other",
      action: { kind: "hold-request" },
      matches: ({ ask }) => (ask as FakeCall<"Produce">["ask"]).batch.producerId >= 0n,
    });
    const twin = other.client.acquire(ROLE, a.id);
    await Promise.all([grant.hit, world.advance(50)]);
    expect(await world.settle(leadership.verify())).toBe(false);
    expect(leadership.loss?.error).toBeInstanceOf(DuplicateMemberError);
    grant.release();
    expect((await world.settle(twin)).isLeader).toBe(true);
    await end(world, a, other);
  });

  it("does not take its own earlier grant, settled late, for a rival's", async () => {
    const world = new World("transaction");
    const a = world.member("a", { autoRenew: false });
    const b = world.member("b");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    loseCommitAnswer(world);
    // The commit of the grant under the second epoch fails, and is made up for when the third one is taken.
    world.cluster.faults.inject({
      api: "EndTxn",
      clientId: "a",
      action: { kind: "error", code: -1 },
      matches: ({ ask }) => (ask as { epoch: number; commit: boolean }).epoch === 1,
    });
    const first = leadership.write([record("x")], { timeoutMs: 200 });
    await expect(world.settle(first)).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await world.advance(100);
    // Beside that grant in the log comes news, while the third one's own grant is refused.
    const refusal = world.cluster.faults.inject({
      api: "Produce",
      clientId: "a",
      action: { kind: "hold-request" },
      matches: ({ ask }) => (ask as { topic?: string }).topic === COORDINATION.topic,
    });
    const second = leadership.write([record("y")]);
    await Promise.all([refusal.hit, world.advance(20)]);
    void b.client.acquire(ROLE, b.id).catch(() => undefined);
    await world.advance(100);
    refuseLeaseRecord(world);
    world.cluster.moveLeader(COORDINATION, (world.cluster.leaderOf(COORDINATION) + 1) % 3);
    refusal.release();
    await expect(world.settle(second)).rejects.toMatchObject({ code: "NOT_COMMITTED" });
    await world.advance(50);
    expect(leadership.loss).toBeUndefined();
    await world.settle(leadership.write([record("z")]));
    await end(world, a, b);
  });

  it("does not take its own new epoch, whose answer is on its way, for a rival's", async () => {
    const world = new World();
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    const answer = world.cluster.faults.inject({
      api: "InitProducerId",
      clientId: "a",
      action: { kind: "hold-answer" },
    });
    // A late grant of a member that had minted before, under another id, is answered with a new epoch.
    const nowMs = BigInt(world.clock.wallMs());
    const lease = { grantedAtMs: nowMs, deadlineMs: nowMs + 1_000n, term: undefined, attributes: {} };
    const pair = { producerId: 999_999n, epoch: 0 };
    world.cluster.append(COORDINATION, [encodeEntry({ kind: "lease", role: ROLE, member: B, pair, ...lease })]);
    await Promise.all([answer.hit, world.advance(50)]);
    const verified = leadership.verify();
    await world.advance(50);
    answer.release();
    expect(await world.settle(verified)).toBe(true);
    await world.advance(50);
    expect(leadership.isLeader).toBe(true);
    await expectCurrentToken(world, a, leadership);
    await end(world, a);
  });

  it("waits whole milliseconds for the end of its lease", async () => {
    const delays: number[] = [];
    const clock = new ManualClock();
    const cluster = new FakeCluster({ clock, latencyMs: () => 0.3 });
    const transport = new FakeTransport({ cluster });
    const counting = {
      wallMs: () => clock.wallMs(),
      monotonicMs: () => clock.monotonicMs(),
      setTimer: (delayMs: number, fire: () => void) => {
        delays.push(delayMs);
        return clock.setTimer(delayMs, fire);
      },
    };
    const client = new CoordinationClient(transport, { leaseMs: LEASE_MS, clock: counting, autoRenew: false });
    await clock.settle(client.acquire(ROLE, A));
    expect(delays.length).toBeGreaterThan(0);
    expect(delays.filter((delayMs) => !Number.isInteger(delayMs))).toEqual([]);
    await clock.settle(client.close());
  });

  it("tells a write that waited for a new epoch in vain that nothing of it is visible", async () => {
    const world = new World();
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    loseCommitAnswer(world);
    const busy = world.cluster.faults.inject({
      api: "InitProducerId",
      clientId: "a",
      times: 2,
      action: { kind: "error", code: KafkaCode.INVALID_TRANSACTION_TIMEOUT },
    });
    const first = leadership.write([record("x")], { timeoutMs: 200 });
    await expect(world.settle(first)).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await expect(world.settle(leadership.write([record("y")]))).rejects.toMatchObject({ code: "NOT_COMMITTED" });
    expect(busy.hits).toBe(2);
    await world.settle(leadership.write([record("z")]));
    await end(world, a);
  });
});

describe("a candidate", () => {
  it("leads also where a round trip takes longer than a state may be old", async () => {
    const clock = new ManualClock();
    const cluster = new FakeCluster({ clock, latencyMs: () => 400 });
    const client = new CoordinationClient(new FakeTransport({ cluster }), { clock });
    const leadership = await clock.settle(client.acquire(ROLE, A, { timeoutMs: 60_000 }));
    expect(leadership.isLeader).toBe(true);
    await clock.settle(client.close());
  });

  it.each(["lose-request", "drop-request", "hold-request"] as const)(
    "takes its registration back although the network fails once (%s)",
    async (kind) => {
      const world = new World();
      const a = world.member("a");
      const b = world.member("b");
      await world.settle(a.client.acquire(ROLE, a.id));
      const abort = new AbortController();
      const next = b.client.acquire(ROLE, b.id, { signal: abort.signal });
      await world.advance(100);
      world.cluster.faults.inject({ api: "Produce", clientId: "b", action: { kind } });
      abort.abort();
      await expect(world.settle(next)).rejects.toMatchObject({ code: "ABORTED" });
      expect(stateOf(world.cluster).roster.map(({ member }) => member)).toEqual(["a"]);
      await end(world, a, b);
    },
  );

  it("whose registration is on its way when its limit is reached takes it back after it has arrived", async () => {
    const world = new World();
    const a = world.member("a");
    const registration = world.cluster.faults.inject({
      api: "Produce",
      clientId: "a",
      action: { kind: "hold-request" },
    });
    const acquiring = a.client.acquire(ROLE, a.id, { timeoutMs: 200 });
    const refused = expect(acquiring).rejects.toMatchObject({ code: "TIMEOUT" });
    await Promise.all([registration.hit, world.advance(400)]);
    registration.release();
    await world.settle(refused);
    await world.advance(100);
    expect(stateOf(world.cluster).roster).toEqual([]);
    await end(world, a);
  });

  it("whose registration is overtaken by its removal leaves none behind", async () => {
    const world = new World();
    const a = world.member("a");
    const b = world.member("b");
    await world.settle(a.client.acquire(ROLE, a.id));
    const late = world.cluster.faults.inject({ api: "Produce", clientId: "b", action: { kind: "delay", ms: 50 } });
    const abort = new AbortController();
    const next = b.client.acquire(ROLE, b.id, { signal: abort.signal });
    const told = next.catch((error: unknown) => error);
    await Promise.all([late.hit, world.advance(20)]);
    abort.abort();
    expect(await world.settle(told)).toMatchObject({ code: "ABORTED" });
    await world.advance(100);
    expect(stateOf(world.cluster).roster.map(({ member }) => member)).toEqual(["a"]);
    await end(world, a, b);
  });

  it.each(MODES)("that gives up at whichever moment leaves nobody waiting (%s)", async (mode) => {
    for (let atMs = 0; atMs < 40; atMs++) {
      const world = new World(mode);
      const a = world.member("a");
      const b = world.member("b");
      const abort = new AbortController();
      const first = a.client.acquire(ROLE, a.id, { signal: abort.signal }).then(
        (leadership) => leadership.close(),
        (error: unknown) => expect(error).toMatchObject({ code: "ABORTED" }),
      );
      await world.advance(atMs);
      abort.abort();
      await world.settle(first);
      const startedAtMs = world.clock.monotonicMs();
      await world.settle(b.client.acquire(ROLE, b.id));
      expect(world.clock.monotonicMs() - startedAtMs).toBeLessThan(100);
      await end(world, a, b);
    }
  });
});

describe("the limits of a call", () => {
  it("hold while the member's last leadership ends", async () => {
    const world = new World();
    const a = world.member("a");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    a.transport.freeze();
    await world.advance(LEASE_MS + 100);
    expect(leadership.loss?.reason).toBe("expired");
    const again = a.client.acquire(ROLE, a.id, { timeoutMs: 500 });
    const told = again.then(
      () => "leads",
      (error: unknown) => (KrabkaError.is(error) ? error.code : "?"),
    );
    await world.advance(600);
    expect(await Promise.race([told, Promise.resolve("waits")])).toBe("TIMEOUT");
    a.transport.thaw();
    await end(world, a);
  });

  it("hold, and are nobody else's, while the transport is prepared", async () => {
    const world = new World();
    const a = world.member("a");
    const answer = world.cluster.faults.inject({ api: "CreateTopics", times: 10, action: { kind: "hold-answer" } });
    const abort = new AbortController();
    const first = a.client.acquire(ROLE, a.id, { signal: abort.signal });
    const second = a.client.acquire(Role.of("other"), a.id);
    const third = a.client.acquire(Role.of("third"), a.id, { timeoutMs: 100 });
    const told = Promise.allSettled([first, third]);
    await world.advance(10);
    abort.abort();
    await world.advance(100);
    expect(await Promise.race([told, undefined])).toMatchObject([
      { status: "rejected", reason: { code: "ABORTED" } },
      { status: "rejected", reason: { code: "TIMEOUT" } },
    ]);
    answer.release();
    expect((await world.settle(second)).isLeader).toBe(true);
    await end(world, a);
  });

  it("a client that is closed in whichever turn of a win leaves no leader, lease, registration or timer behind", async () => {
    let won = false;
    for (let turns = 0; !won; turns += 2) {
      const clock = new ManualClock();
      const cluster = new FakeCluster({ clock });
      cluster.createTopic(COORDINATION.topic, {
        partitions: 16,
        cleanupPolicy: "compact",
        timestampType: "LogAppendTime",
      });
      const client = new CoordinationClient(new FakeTransport({ cluster }), { leaseMs: LEASE_MS, clock });
      let leadership: Leadership | undefined;
      const acquiring = client.acquire(ROLE, A).then(
        (acquired) => {
          leadership = acquired;
        },
        (error: unknown) => expect(error).toMatchObject({ code: "CLOSED" }),
      );
      for (let turn = 0; turn < turns; turn++) await Promise.resolve();
      won = leadership !== undefined;
      let closed = false;
      void client.close().then(() => {
        closed = true;
      });
      await clock.advance(100);
      expect([turns, closed, leadership?.isLeader ?? false]).toEqual([turns, true, false]);
      await acquiring;
      const { roster, lease } = stateOf(cluster);
      expect([turns, roster]).toEqual([turns, []]);
      expect([turns, lease === undefined || lease.deadlineMs <= clock.wallMs()]).toEqual([turns, true]);
      expect([turns, clock.pendingTimers]).toEqual([turns, 0]);
    }
  });
});
