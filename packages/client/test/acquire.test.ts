import { DuplicateMemberError, FencedError, KrabkaError, MemberId, Role } from "@krabka/core";
import { KafkaCode } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { LEASE_MS, ROLE, World } from "./world.js";

describe.each(["append", "transaction"] as const)("with lease records as %s", (leaseRecords) => {
  it("the only candidate leads at once, and its token is what the coordinator holds", async () => {
    const world = new World(leaseRecords);
    const a = world.member("a");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    expect(leadership.isLeader).toBe(true);
    const status = await world.settle(a.client.describe(ROLE));
    expect(status.isAuthoritative(leadership.token)).toBe(true);
    await world.settle(a.client.close());
    expect(a.clock.pendingTimers).toBe(0);
  });

  it("a guarded write resolves with its place once it is committed, and carries the token", async () => {
    const world = new World(leaseRecords);
    const a = world.member("a");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    const written = await world.settle(leadership.write({ topic: "commands", key: "k", value: "v", partition: 1 }));
    expect(written).toMatchObject({ topic: "commands", partition: 1, offset: 0n });
    const [record] = world.cluster.read({ topic: "commands", partition: 1 });
    expect(Buffer.from(record?.headers[0]?.value ?? []).toString()).toBe(String(leadership.token));
    await world.settle(a.client.close());
  });

  it("a standby takes over within milliseconds of a resignation, with exactly one mint", async () => {
    const world = new World(leaseRecords);
    const [a, b, c] = [world.member("a"), world.member("b"), world.member("c")];
    const first = await world.settle(a.client.acquire(ROLE, a.id));
    const next = b.client.acquire(ROLE, b.id);
    await world.advance(100);
    const third = c.client.acquire(ROLE, c.id);
    third.catch(() => undefined);
    await world.advance(100);
    const minted = world.count("InitProducerId");
    const fromMs = world.clock.monotonicMs();
    await world.settle(first.resign());
    const second = await world.settle(next);
    expect(world.clock.monotonicMs() - fromMs).toBeLessThan(50);
    expect(world.count("InitProducerId") - minted).toBe(1);
    expect(second.token.compareTo(first.loss?.error.token as never)).toBe(1);
    await world.advance(LEASE_MS * 3);
    expect(second.loss).toBeUndefined();
    expect(second.isLeader).toBe(true);
    await world.settle(b.client.close());
    await world.settle(third);
    await world.settle(c.client.close());
  });

  it("a silent leader is succeeded when its lease ends, and what it still sends is refused", async () => {
    const world = new World(leaseRecords);
    const [a, b] = [world.member("a"), world.member("b")];
    const first = await world.settle(a.client.acquire(ROLE, a.id));
    const oldToken = first.token;
    const next = b.client.acquire(ROLE, b.id);
    await world.advance(100);
    a.clock.suspend();
    a.transport.freeze();
    const fromMs = world.clock.monotonicMs();
    const second = await world.settle(next);
    expect(world.clock.monotonicMs() - fromMs).toBeLessThanOrEqual(LEASE_MS + 50);
    expect(second.token.compareTo(oldToken)).toBe(1);
    // Its monotonic clock stood still: by its own judgement it still leads.
    expect(first.isLeader).toBe(true);
    const stale = first.write({ topic: "commands", key: "k", value: "stale", partition: 0 });
    a.transport.thaw();
    a.clock.resume();
    await expect(world.settle(stale)).rejects.toSatisfy(FencedError.is);
    expect(first.isLeader).toBe(false);
    expect(world.cluster.read({ topic: "commands", partition: 0 })).toHaveLength(0);
    await world.settle(Promise.all([a.client.close(), b.client.close()]));
  });
});

it("a member that restarts lands at the end of the line", async () => {
  const world = new World();
  const [a, b, c] = [world.member("a"), world.member("b"), world.member("c")];
  const first = await world.settle(a.client.acquire(ROLE, a.id));
  const giveUp = new AbortController();
  const early = b.client.acquire(ROLE, b.id, { signal: giveUp.signal });
  early.catch(() => undefined);
  await world.advance(50);
  const waiting = c.client.acquire(ROLE, c.id);
  await world.advance(50);
  giveUp.abort();
  await expect(world.settle(early)).rejects.toMatchObject({ code: "ABORTED" });
  const again = world.member("b");
  const late = again.client.acquire(ROLE, again.id);
  late.catch(() => undefined);
  await world.advance(50);
  await world.settle(first.resign());
  expect((await world.settle(waiting)).member).toBe("c");
  await world.settle(c.client.close());
  expect((await world.settle(late)).member).toBe("b");
  await world.settle(Promise.all([a.client.close(), again.client.close()]));
});

it("a dead member in front delays a failover once, not twice", async () => {
  const world = new World();
  const [a, dead, b, c] = [world.member("a"), world.member("dead"), world.member("b"), world.member("c")];
  const first = await world.settle(a.client.acquire(ROLE, a.id));
  for (const ghost of [dead]) {
    ghost.client.acquire(ROLE, ghost.id).catch(() => undefined);
    await world.advance(50);
    ghost.clock.freeze();
    ghost.transport.freeze();
  }
  const second = b.client.acquire(ROLE, b.id);
  await world.advance(50);
  const third = c.client.acquire(ROLE, c.id);
  await world.advance(50);
  let fromMs = world.clock.monotonicMs();
  await world.settle(first.resign());
  const leading = await world.settle(second);
  const withGhost = world.clock.monotonicMs() - fromMs;
  expect(withGhost).toBeGreaterThan(100);
  expect(withGhost).toBeLessThan(LEASE_MS / 6 + 50);
  fromMs = world.clock.monotonicMs();
  await world.settle(leading.resign());
  await world.settle(third);
  expect(world.clock.monotonicMs() - fromMs).toBeLessThan(50);
  await world.settle(Promise.all([a.client.close(), b.client.close(), c.client.close()]));
});

it("a timeout and an abort leave no registration behind", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b")];
  await world.settle(a.client.acquire(ROLE, a.id));
  await expect(world.settle(b.client.acquire(ROLE, b.id, { timeoutMs: 500 }))).rejects.toMatchObject({
    code: "TIMEOUT",
  });
  const observed = a.client.observe(ROLE);
  const view = await world.settle(observed.next());
  expect(view.value?.roster.map((entry) => entry.member)).toEqual(["a"]);
  await observed.return();
  await world.settle(Promise.all([a.client.close(), b.client.close()]));
});

it("two processes with one member id are told, and do not fight it out", async () => {
  const world = new World();
  const [one, two] = [world.member("same"), world.member("same")];
  const first = await world.settle(one.client.acquire(ROLE, one.id));
  const second = await world.settle(two.client.acquire(ROLE, two.id));
  await world.advance(50);
  expect(first.loss?.error).toBeInstanceOf(DuplicateMemberError);
  expect(second.isLeader).toBe(true);
  await world.advance(LEASE_MS * 4);
  expect(second.isLeader).toBe(true);
  await world.settle(Promise.all([one.client.close(), two.client.close()]));
});

it("one client refuses to compete twice for one role under one id", async () => {
  const world = new World();
  const a = world.member("a");
  await world.settle(a.client.acquire(ROLE, a.id));
  await expect(world.settle(a.client.acquire(ROLE, a.id))).rejects.toBeInstanceOf(DuplicateMemberError);
  await world.settle(a.client.close());
});

it("a chosen standby takes over at once, although others wait longer", async () => {
  const world = new World();
  const [a, b, c] = [world.member("a"), world.member("b"), world.member("c")];
  const first = await world.settle(a.client.acquire(ROLE, a.id));
  const second = b.client.acquire(ROLE, b.id);
  second.catch(() => undefined);
  await world.advance(50);
  const third = c.client.acquire(ROLE, c.id);
  await world.advance(50);
  const toNobody = world.settle(first.transferTo(MemberId.of("nobody")));
  await expect(toNobody).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  await world.settle(first.transferTo(c.id));
  expect((await world.settle(third)).isLeader).toBe(true);
  await world.settle(Promise.all([a.client.close(), c.client.close(), world.settle(second)]));
  await world.settle(b.client.close());
});

it("a standby whose registration has not reached the leader yet is a standby all the same", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b")];
  const first = await world.settle(a.client.acquire(ROLE, a.id));
  const reading = world.cluster.faults.inject({ api: "Fetch", clientId: "a", action: { kind: "hold-request" } });
  // Its own record ends the poll that is under way.
  await world.settle(first.renew().then(() => reading.hit));
  const second = b.client.acquire(ROLE, b.id);
  await world.advance(20);
  const handedOver = first.transferTo(b.id);
  reading.release();
  await world.settle(handedOver);
  expect((await world.settle(second)).isLeader).toBe(true);
  await world.settle(Promise.all([a.client.close(), b.client.close()]));
});

it("a grant whose answer was lost is given again where no new epoch can be taken, so that the term can write", async () => {
  const world = new World("transaction");
  const a = world.member("a", { transport: { without: { conditionalRemint: "this backend cannot re-mint" } } });
  const lost = world.cluster.faults.inject({
    api: "EndTxn",
    clientId: "a",
    action: { kind: "lose-answer" },
    matches: ({ ask }) => (ask as { commit?: boolean }).commit === true,
  });
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  expect(lost.hits).toBe(1);
  await world.settle(leadership.write({ topic: "commands", value: "x" }));
  expect(leadership.isLeader).toBe(true);
  expect(world.count("InitProducerId", "a")).toBe(2);
  await world.settle(a.client.close());
});

it("bad timings are refused when the client is made", () => {
  const world = new World();
  expect(() => world.member("a", { leaseMs: 0 })).toThrow(KrabkaError);
  expect(() => world.member("a", { leaseMs: 1_000, renewMs: 1_000 })).toThrow(/renewMs < leaseMs/);
});

it("hundreds of roles in one client give no warning about listeners", async () => {
  const warnings: Error[] = [];
  // Others are not meant, such as the manual clock's where the machine is slow.
  const onWarning = (warning: Error) => {
    if (warning.name === "MaxListenersExceededWarning") warnings.push(warning);
  };
  process.on("warning", onWarning);
  const world = new World();
  const a = world.member("a");
  const roles = Array.from({ length: 200 }, (_, i) => Role.of(`role-${i}`));
  await world.settle(Promise.all(roles.map((role) => a.client.acquire(role, a.id))));
  await world.settle(a.client.close());
  process.off("warning", onWarning);
  expect(warnings).toEqual([]);
});

it("a member that may look at the role but not mint for it is told before it registers", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b")];
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  // What a broker says to whoever lacks the right to write under a transactional id.
  for (const api of ["EndTxn", "InitProducerId", "AddPartitionsToTxn"] as const) {
    const code = KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
    world.cluster.faults.inject({ api, clientId: "b", times: 1_000, action: { kind: "error", code } });
  }
  const startedAtMs = world.clock.monotonicMs();
  await expect(world.settle(b.client.acquire(ROLE, b.id))).rejects.toMatchObject({ code: "UNAUTHORIZED" });
  expect(world.clock.monotonicMs() - startedAtMs).toBeLessThan(100);
  expect(world.count("InitProducerId", "b")).toBe(0);
  const produced = world.cluster.requests.filter(({ api, clientId }) => api === "Produce" && clientId === "b");
  expect(produced).toEqual([]);
  expect(await world.settle(leadership.verify())).toBe(true);
  await world.settle(Promise.all([a, b].map(({ client }) => client.close())));
});
