import { FencedError, KrabkaError, partitionForRole } from "@krabka/core";
import { type FaultAction, KafkaCode } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import type { Leadership } from "../src/index.js";
import { LEASE_MS, type Member, ROLE, World } from "./world.js";

const record = (value: string) => ({ topic: "commands", key: "k", value, partition: 0 });

const values = (world: World) =>
  world.cluster.read({ topic: "commands", partition: 0 }).map(({ value }) => Buffer.from(value ?? []).toString());

async function lead(
  leaseRecords: "append" | "transaction" = "append",
): Promise<{ world: World; a: Member; leadership: Leadership }> {
  const world = new World(leaseRecords);
  const a = world.member("a");
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  return { world, a, leadership };
}

/** A leader that lost the answer to a commit, and whose mint after that meets this fault. */
async function oweAnEpoch(action: FaultAction) {
  const world = new World();
  const a = world.member("a", { autoRenew: false });
  const leadership = await world.settle(a.client.acquire(ROLE, a.id));
  world.cluster.faults.inject({ api: "EndTxn", clientId: "a", action: { kind: "drop-answer" } });
  const mint = world.cluster.faults.inject({ api: "InitProducerId", clientId: "a", action });
  const unknown = leadership.write(record("x"), { timeoutMs: 100 });
  await expect(world.settle(unknown)).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  await Promise.all([mint.hit, world.advance(50)]);
  return { world, a, leadership, mint };
}

const end = (world: World, ...members: Member[]) =>
  world.settle(Promise.all(members.map(({ client }) => client.close())));

describe("guarded writes", () => {
  it("are committed in the order of the calls, each with its own place", async () => {
    const { world, a, leadership } = await lead();
    const writes = Array.from({ length: 50 }, (_, i) => leadership.write(record(String(i))));
    const written = await world.settle(Promise.all(writes));
    expect(values(world)).toEqual(Array.from({ length: 50 }, (_, i) => String(i)));
    const offsets = written.map(({ offset }) => offset);
    expect([...offsets].sort((x, y) => (x < y ? -1 : 1))).toEqual(offsets);
    await end(world, a);
  });

  it("of several records are atomic, and an empty one sends nothing", async () => {
    const { world, a, leadership } = await lead();
    const written = await world.settle(leadership.write([record("1"), { ...record("2"), partition: 1 }]));
    expect(written.map(({ partition }) => partition)).toEqual([0, 1]);
    const before = world.cluster.requests.length;
    expect(await world.settle(leadership.write([]))).toEqual([]);
    expect(world.cluster.requests.slice(before).filter(({ api }) => api !== "Fetch")).toEqual([]);
    await end(world, a);
  });

  it("B3: a transaction whose builder throws sends nothing, and the next write works", async () => {
    const { world, a, leadership } = await lead();
    const fault = new Error("serializer");
    await expect(
      leadership.transaction((scope) => {
        scope.write(record("never"));
        throw fault;
      }),
    ).rejects.toBe(fault);
    const { result } = await world.settle(
      leadership.transaction((scope) => {
        scope.write(record("once"));
        return 7;
      }),
    );
    expect(result).toBe(7);
    expect(values(world)).toEqual(["once"]);
    await end(world, a);
  });

  it("with bad input are refused before anything is sent", async () => {
    const { world, a, leadership } = await lead();
    const before = world.cluster.requests.length;
    const bad = [
      { ...record("x"), topic: "" },
      { ...record("x"), topic: "__coordination_state" },
      { ...record("x"), key: 7 as never },
      { ...record("x"), value: undefined as never },
      { ...record("x"), partition: -1 },
      { ...record("x"), headers: { h: 1 as never } },
    ];
    for (const given of bad) await expect(leadership.write(given)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(world.cluster.requests.slice(before).filter(({ api }) => api === "Produce")).toEqual([]);
    await expect(world.settle(leadership.write({ ...record("x"), topic: "nowhere" }))).rejects.toMatchObject({
      code: "UNKNOWN_TOPIC",
    });
    await world.settle(leadership.write(record("fine")));
    await end(world, a);
  });

  it("copy the caller's bytes, which may change after the call", async () => {
    const { world, a, leadership } = await lead();
    const value = Buffer.from("before");
    const write = leadership.write({ ...record(""), value });
    value.fill(0);
    await world.settle(write);
    expect(values(world)).toEqual(["before"]);
    await end(world, a);
  });

  it("beyond the queue's bound are refused with QUEUE_FULL", async () => {
    const world = new World();
    const a = world.member("a", { maxQueuedWrites: 2 });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    const results = await world.settle(
      Promise.allSettled(Array.from({ length: 5 }, (_, i) => leadership.write(record(String(i))))),
    );
    const refused = results.filter(({ status }) => status === "rejected");
    expect(refused).toHaveLength(2);
    for (const result of refused)
      expect((result as PromiseRejectedResult).reason).toMatchObject({ code: "QUEUE_FULL" });
    expect(values(world)).toHaveLength(3);
    await end(world, a);
  });

  it("that wait can be given up, and those before and after are not hurt", async () => {
    const { world, a, leadership } = await lead();
    const giveUp = new AbortController();
    const first = leadership.write(record("1"));
    const second = leadership.write(record("2"), { signal: giveUp.signal });
    const third = leadership.write(record("3"));
    giveUp.abort();
    await expect(second).rejects.toMatchObject({ code: "ABORTED" });
    await world.settle(Promise.all([first, third]));
    expect(values(world)).toEqual(["1", "3"]);
    await end(world, a);
  });

  it("B9: 50 writes, 5 renewals and a resignation at once all settle with the truth", async () => {
    const { world, a, leadership } = await lead();
    const writes = Array.from({ length: 50 }, (_, i) => leadership.write(record(String(i))));
    const renewals = Array.from({ length: 5 }, () => leadership.renew());
    const late = leadership.resign().then(() => leadership.write(record("late")));
    const results = await world.settle(Promise.allSettled([...writes, ...renewals]));
    await expect(world.settle(late)).rejects.toMatchObject({ code: "NOT_LEADER" });
    const resolved = results.slice(0, 50).filter(({ status }) => status === "fulfilled");
    expect(values(world)).toHaveLength(resolved.length);
    expect(resolved).toHaveLength(50);
    await end(world, a);
  });
});

describe("ambiguous outcomes", () => {
  it.each(["append", "transaction"] as const)(
    "B2: a lost EndTxn answer is settled as committed, then a new epoch is taken (%s)",
    async (mode) => {
      const { world, a, leadership } = await lead(mode);
      const { token } = leadership;
      world.cluster.faults.inject({ api: "EndTxn", action: { kind: "lose-answer" } });
      await world.settle(leadership.write(record("once")));
      await world.settle(leadership.write(record("twice")));
      expect(values(world)).toEqual(["once", "twice"]);
      expect(leadership.token.compareTo(token)).toBe(1);
      expect(leadership.token.epoch).toBe(token.epoch + 1);
      expect(leadership.token.term).toBeGreaterThan(token.term);
      const status = await world.settle(a.client.describe(ROLE));
      expect(status.isAuthoritative(leadership.token)).toBe(true);
      await end(world, a);
    },
  );

  it("where no new epoch can be taken the leadership ends, and says so without blaming the broker", async () => {
    const world = new World("transaction");
    const a = world.member("a", { transport: { without: { conditionalRemint: "this backend cannot re-mint" } } });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    world.cluster.faults.inject({ api: "EndTxn", action: { kind: "lose-answer" } });
    await world.settle(leadership.write(record("once")));
    const next = leadership.write(record("never"));
    await expect(world.settle(next)).rejects.toThrow(/gave up its pair.*answer was lost.*this backend cannot re-mint/);
    expect(leadership.loss?.reason).toBe("fenced");
    expect(values(world)).toEqual(["once"]);
    await end(world, a);
  });

  it("A2: a commit that arrives late does not end the next transaction", async () => {
    const { world, a, leadership } = await lead();
    const held = world.cluster.faults.inject({ api: "EndTxn", action: { kind: "hold-request" } });
    const first = leadership.write(record("1"), { timeoutMs: 200 });
    await expect(world.settle(first)).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    const during = world.cluster.faults.inject({
      api: "Produce",
      matches: (call) => call.ask !== undefined && world.count("EndTxn") > 0,
      action: { kind: "run", before: () => held.release() },
    });
    await world.settle(leadership.write([record("2a"), { ...record("2b"), partition: 1 }]));
    during.remove();
    const [zero, one] = [values(world), world.cluster.read({ topic: "commands", partition: 1 })];
    // The first one was settled with the next epoch, and stands before the second or nowhere.
    expect(["2a", "1,2a"]).toContain(zero.join());
    expect(one).toHaveLength(1);
    await end(world, a);
  });

  it("A10: a takeover between the record and the commit rejects the write as fenced, and nothing is visible", async () => {
    const { world, a, leadership } = await lead();
    world.cluster.faults.inject({
      api: "EndTxn",
      action: { kind: "run", before: () => void world.cluster.mint(ROLE) },
    });
    await expect(world.settle(leadership.write(record("never")))).rejects.toSatisfy(FencedError.is);
    expect(values(world)).toEqual([]);
    expect(leadership.loss?.reason).toBe("fenced");
    expect(leadership.signal.aborted).toBe(true);
    await end(world, a);
  });

  it("a write that the broker aborted is told as NOT_COMMITTED and the leadership goes on", async () => {
    const { world, a, leadership } = await lead();
    const tooLarge = KafkaCode.MESSAGE_TOO_LARGE;
    world.cluster.faults.inject({ api: "Produce", action: { kind: "error", code: tooLarge } });
    await expect(world.settle(leadership.write(record("never")))).rejects.toMatchObject({ code: "NOT_COMMITTED" });
    await world.settle(leadership.write(record("small")));
    expect(leadership.isLeader).toBe(true);
    expect(values(world)).toEqual(["small"]);
    await end(world, a);
  });
});

describe("losing", () => {
  it("E1: a leader whose renewals get no answer stops saying yes at its deadline, and says so once", async () => {
    const { world, a, leadership } = await lead();
    const seen: unknown[] = [];
    leadership.signal.addEventListener("abort", () => seen.push(leadership.signal.reason));
    a.transport.freeze();
    await world.advance(LEASE_MS + 10);
    expect(leadership.isLeader).toBe(false);
    expect(leadership.loss?.reason).toBe("expired");
    expect(seen).toHaveLength(1);
    expect(() => leadership.token).toThrow(expect.objectContaining({ code: "NOT_LEADER" }) as Error);
    a.transport.thaw();
    await end(world, a);
  });

  it("E7: after a blocked event loop isLeader is false and a write is refused at once, before any timer ran", async () => {
    const { world, a, leadership } = await lead();
    a.clock.freeze();
    await world.advance(LEASE_MS * 2);
    const before = world.cluster.requests.length;
    expect(leadership.isLeader).toBe(false);
    await expect(leadership.write(record("never"))).rejects.toMatchObject({ code: "NOT_LEADER" });
    expect(world.cluster.requests).toHaveLength(before);
    a.clock.resume();
    await end(world, a);
  });

  it("E7: what ended while the event loop was blocked can't be given up any more", async () => {
    const { world, a, leadership } = await lead();
    a.clock.freeze();
    await world.advance(LEASE_MS * 2);
    const left = leadership.resign();
    a.clock.resume();
    await world.settle(left);
    expect(leadership.loss?.reason).toBe("expired");
    await end(world, a);
  });

  it("E13: deadline, fence, rival and close in one tick give one reason", async () => {
    const { world, a, leadership } = await lead();
    let times = 0;
    leadership.signal.addEventListener("abort", () => {
      times += 1;
    });
    world.cluster.mint(ROLE);
    const write = leadership.write(record("never"));
    write.catch(() => undefined);
    const closing = leadership.close();
    await world.advance(LEASE_MS);
    await world.settle(closing);
    await expect(write).rejects.toThrow();
    expect(times).toBe(1);
    expect(leadership.loss?.reason).toBe("resigned");
    await end(world, a);
  });

  it("A14: a stranger's mint is noticed at the next renewal, and is not called a rival", async () => {
    const { world, a, leadership } = await lead();
    world.cluster.mint(ROLE);
    await world.advance(LEASE_MS);
    expect(leadership.isLeader).toBe(false);
    const again = await world.settle(a.client.acquire(ROLE, a.id));
    expect(again.isLeader).toBe(true);
    await end(world, a);
  });

  it("E16: verify says no after a takeover, before any renewal", async () => {
    const { world, a, leadership } = await lead();
    expect(await world.settle(leadership.verify())).toBe(true);
    world.cluster.mint(ROLE);
    expect(leadership.isLeader).toBe(true);
    expect(await world.settle(leadership.verify())).toBe(false);
    expect(leadership.loss?.reason).toBe("fenced");
    await end(world, a);
  });

  it("E16: verify says no after a takeover also where an answer is lost and a new epoch is owed", async () => {
    const { world, a, leadership } = await oweAnEpoch({ kind: "error", code: -1 });
    expect(await world.settle(leadership.verify())).toBe(true);
    world.cluster.mint(ROLE);
    expect(leadership.isLeader).toBe(true);
    expect(await world.settle(leadership.verify())).toBe(false);
    expect(leadership.loss?.reason).toBe("fenced");
    await end(world, a);
  });

  it("E16: verify says nothing, within its limit, while only the end of a mint can tell whose the new pair is", async () => {
    const { world, a, leadership, mint } = await oweAnEpoch({ kind: "hold-request" });
    world.cluster.mint(ROLE);
    const startedAtMs = world.clock.monotonicMs();
    await expect(world.settle(leadership.verify({ timeoutMs: 200 }))).rejects.toMatchObject({ code: "TIMEOUT" });
    expect(world.clock.monotonicMs() - startedAtMs).toBe(200);
    mint.release();
    expect(await world.settle(leadership.verify())).toBe(false);
    await end(world, a);
  });

  it("E17: the handle in hand is renewed in place, and never turns valid again", async () => {
    const { world, a, leadership } = await lead();
    const { token } = leadership;
    for (let i = 0; i < 5; i++) {
      await world.advance(LEASE_MS);
      expect(leadership.remainingMs).toBeGreaterThan(LEASE_MS / 2);
    }
    expect(leadership.token.equals(token)).toBe(true);
    await world.settle(leadership.resign());
    const next = await world.settle(a.client.acquire(ROLE, a.id));
    expect(next.isLeader).toBe(true);
    expect(leadership.isLeader).toBe(false);
    await expect(leadership.renew()).rejects.toMatchObject({ code: "NOT_LEADER" });
    await end(world, a);
  });
});

describe("renewing", () => {
  it("E10: never has two renewals in flight, however slow they are", async () => {
    const { world, a, leadership } = await lead();
    const partition = partitionForRole(ROLE);
    let inFlight = 0;
    let most = 0;
    world.cluster.faults.inject({
      api: "Produce",
      matches: (call) => (call.ask as { partition?: number }).partition === partition,
      times: 1_000,
      action: {
        kind: "run",
        before: async () => {
          inFlight += 1;
          most = Math.max(most, inFlight);
          await new Promise<void>((resolve) => a.clock.setTimer(900, resolve));
          inFlight -= 1;
        },
      },
    });
    for (let i = 0; i < 20; i++) {
      leadership.renew().catch(() => undefined);
      await world.advance(500);
    }
    expect(most).toBe(1);
    expect(leadership.isLeader).toBe(true);
    await end(world, a);
  });

  it("by hand works without a background timer", async () => {
    const world = new World();
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    expect(leadership.renewDue).toBe(false);
    await world.advance(LEASE_MS / 2);
    expect(leadership.renewDue).toBe(true);
    await world.settle(leadership.renew());
    expect(leadership.renewDue).toBe(false);
    await world.advance(LEASE_MS);
    expect(leadership.loss?.reason).toBe("expired");
    await end(world, a);
  });

  it("rides in a guarded transaction where lease records are transactions", async () => {
    const world = new World("transaction");
    const a = world.member("a", { autoRenew: false });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    await world.advance(LEASE_MS / 2);
    const written = await world.settle(leadership.write([record("x")]));
    expect(written).toHaveLength(1);
    expect(leadership.renewDue).toBe(false);
    expect(leadership.remainingMs).toBeGreaterThan(LEASE_MS - 100);
    await end(world, a);
  });
});

describe("resigning", () => {
  it("F2: the release stands behind the last accepted write", async () => {
    const { world, a, leadership } = await lead();
    const writes = Array.from({ length: 5 }, (_, i) => leadership.write(record(String(i))));
    await world.settle(leadership.resign());
    await Promise.all(writes);
    expect(values(world)).toHaveLength(5);
    await end(world, a);
  });

  it("can be retried when the release could not be written", async () => {
    const { world, a, leadership } = await lead();
    const b = world.member("b");
    const next = b.client.acquire(ROLE, b.id);
    await world.advance(100);
    const cut = world.cluster.faults.inject({
      api: "Produce",
      clientId: "a",
      times: 1_000,
      action: { kind: "drop-request" },
    });
    await expect(world.settle(leadership.resign({ timeoutMs: 200 }))).rejects.toBeInstanceOf(KrabkaError);
    expect(leadership.isLeader).toBe(false);
    cut.remove();
    await world.settle(leadership.resign());
    expect((await world.settle(next)).isLeader).toBe(true);
    await end(world, a, b);
  });

  it("after a loss has nothing to give up and resolves, twice", async () => {
    const { world, a, leadership } = await lead();
    world.cluster.mint(ROLE);
    await expect(world.settle(leadership.write(record("x")))).rejects.toSatisfy(FencedError.is);
    await world.settle(leadership.resign());
    await world.settle(leadership.close());
    await end(world, a);
  });
});

it.each(["append", "transaction"] as const)(
  "a grant that another member appended late makes the holder grant anew (own by %s)",
  async (mode) => {
    const { world, a, leadership } = await lead(mode);
    const { token } = leadership;
    const b = world.member("b");
    // A stale rival under another producer id, whose append the partition cannot refuse.
    const { encodeEntry } = await import("@krabka/core");
    world.cluster.append({ topic: "__coordination_state", partition: partitionForRole(ROLE) }, [
      encodeEntry({
        kind: "lease",
        role: ROLE,
        member: b.id,
        pair: { producerId: 999_999n, epoch: 0 },
        term: undefined,
        grantedAtMs: BigInt(world.clock.wallMs()),
        deadlineMs: BigInt(world.clock.wallMs() + LEASE_MS),
        attributes: {},
      }),
    ]);
    await world.advance(100);
    expect(leadership.isLeader).toBe(true);
    expect(leadership.token.term).toBeGreaterThan(token.term);
    const views = b.client.observe(ROLE);
    const seen = (await world.settle(views.next())).value;
    expect(seen?.leader?.member).toBe("a");
    expect(seen?.leader?.token.equals(leadership.token)).toBe(true);
    await views.return();
    await end(world, a, b);
  },
);
