import { encodeUtf8, type FeedListener, type Prepared, partitionForRole, Role } from "@krabka/core";
import { FakeCluster, FakeTransport, ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";

const SESSION = { transactionTimeoutMs: 10_000, mayMint: () => true };
const silent: FeedListener = { onRecords() {}, onUncommitted() {}, onReset() {}, onMalformed() {}, onError() {} };
const command = { topic: "commands", key: encodeUtf8("device"), value: encodeUtf8("x"), headers: [] };

const start = (options: Partial<ConstructorParameters<typeof FakeTransport>[0]> = {}) => {
  const clock = new ManualClock();
  const cluster = new FakeCluster({ clock });
  cluster.createTopic("commands", { partitions: 1 });
  return { clock, cluster, transport: new FakeTransport({ cluster, ...options }) };
};

describe("FakeTransport", () => {
  it("warns of a coordination topic with a single replica", async () => {
    const { clock, cluster, transport } = start();
    cluster.createTopic("__coordination_state", { partitions: 16, cleanupPolicy: "compact", replicationFactor: 1 });
    const prepared: Prepared = await clock.settle(transport.prepare());
    expect(prepared.warnings).toEqual([expect.stringContaining("replication factor 1")]);
  });

  it("says that a write is not committed when the broker timed its transaction out (B1)", async () => {
    const { clock, cluster, transport } = start({ attemptTimeoutMs: 60_000, requestTimeoutMs: 60_000 });
    const session = await clock.settle(transport.openSession(Role.of("r"), SESSION));
    cluster.faults.inject({ api: "EndTxn", action: { kind: "delay", ms: 15_000 } });
    expect((await clock.settle(session.commit([command]))).status).toBe("fenced");
    expect(cluster.read({ topic: "commands", partition: 0 })).toEqual([]);
  });

  it("does not claim that nothing was committed when a lost commit is followed by a takeover", async () => {
    const { clock, cluster, transport } = start();
    const session = await clock.settle(transport.openSession(Role.of("r"), SESSION));
    cluster.faults.inject({ api: "EndTxn", action: { kind: "lose-answer" } });
    cluster.faults.inject({ api: "EndTxn", action: { kind: "run", before: () => void cluster.mint("r") } });
    expect((await clock.settle(session.commit([command]))).status).toBe("unknown");
    expect(cluster.read({ topic: "commands", partition: 0 }).length).toBe(1);
  });

  it("tells the truth about a write that finds no way to a broker, before or in the middle of it", async () => {
    const { clock, cluster, transport } = start();
    const session = await clock.settle(transport.openSession(Role.of("r"), SESSION));
    const leaderNotAvailable = { kind: "error", code: 5 } as const;
    cluster.faults.inject({ api: "Metadata", action: leaderNotAvailable });
    expect((await clock.settle(session.commit([command]))).status).toBe("aborted");
    expect(session.mustRemint).toBe(false);
    const target = { topic: "commands", partition: 0 };
    expect((await clock.settle(session.commit([command]))).status).toBe("committed");
    // The leader has moved, and where to is not known yet.
    cluster.moveLeader(target, (cluster.leaderOf(target) + 1) % 3);
    cluster.faults.inject({ api: "Metadata", action: leaderNotAvailable });
    expect((await clock.settle(session.commit([command]))).status).toBe("unknown");
    expect((await clock.settle(session.remint()))?.status).toBe("aborted");
    expect((await clock.settle(session.commit([command]))).status).toBe("committed");
    expect(cluster.read(target).length).toBe(2);
  });

  it("neither sends nor hears anything while it is frozen", async () => {
    const { clock, cluster, transport } = start();
    const session = await clock.settle(transport.openSession(Role.of("r"), SESSION));
    transport.freeze();
    const commit = session.commit([command]);
    await clock.advance(100);
    cluster.mint("r");
    expect(cluster.read({ topic: "commands", partition: 0 })).toEqual([]);
    transport.thaw();
    expect((await clock.settle(commit)).status).toBe("fenced");
  });

  it("stamps records by the member's own wall clock", async () => {
    const clock = new ManualClock({ wallMs: 1_000_000 });
    const cluster = new FakeCluster({ clock });
    cluster.createTopic("commands", { partitions: 1 });
    const transport = new FakeTransport({ cluster, clock: clock.fork({ wallMs: 5_000 }) });
    const session = await clock.settle(transport.openSession(Role.of("r"), SESSION));
    await clock.settle(session.commit([command]));
    const [batch] = cluster.log({ topic: "commands", partition: 0 }).read(0n, 1n) ?? [];
    expect(batch?.records[0]?.timestampMs).toBe(5_000);
  });

  it("serves 500 roles, and leaves no timer behind when it closes", async () => {
    const { clock, cluster, transport } = start();
    await clock.settle(transport.prepare());
    const roles = Array.from({ length: 500 }, (_, index) => Role.of(`role-${index}`));
    const feeds = roles.map((role) => transport.follow(role, silent));
    const sessions = await clock.settle(Promise.all(roles.map((role) => transport.openSession(role, SESSION))));
    const outcomes = await clock.settle(Promise.all(sessions.map((session) => session.commit([command]))));
    expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(["committed"]));
    expect(cluster.read({ topic: "commands", partition: 0 }).length).toBe(500);
    await clock.settle(Promise.all(feeds.map((feed) => feed.sync())));
    await clock.settle(transport.close());
    cluster.close();
    expect(clock.pendingTimers).toBe(0);
  });

  it("tells a feed to drop everything when the records at its place were deleted", async () => {
    const { clock, cluster, transport } = start();
    await clock.settle(transport.prepare());
    const role = Role.of("r");
    const place = { topic: "__coordination_state", partition: partitionForRole(role) };
    const told: string[] = [];
    const onReset = () => told.push("reset");
    const onMalformed = (offset: bigint) => told.push(`malformed at ${offset}`);
    const feed = transport.follow(role, { ...silent, onReset, onMalformed });
    await clock.settle(feed.sync());
    const held = cluster.faults.inject({ api: "Fetch", action: { kind: "hold-request" } });
    cluster.append(place, [command]);
    await clock.settle(held.hit);
    cluster.append(place, [command]);
    cluster.log(place).deleteRecords(-1n);
    cluster.append(place, [command]);
    held.release();
    expect(await clock.settle(feed.sync())).toBe(3n);
    expect(told).toEqual(["malformed at 0", "reset", "malformed at 2"]);
    await clock.settle(transport.close());
  });
});
