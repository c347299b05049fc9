import { encodeUtf8 } from "@krabka/core";
import { ConnectionLostError, FakeCluster, KafkaCode, ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { RawClient } from "./raw-client.js";

const target = { topic: "log", partition: 0 };

const start = () => {
  const clock = new ManualClock();
  const cluster = new FakeCluster({ clock });
  cluster.createTopic("log", { partitions: 3 });
  return { clock, cluster, client: new RawClient(cluster, "role") };
};

describe("FakeCluster", () => {
  it("executes a request whose answer it loses, and not one that it loses itself", async () => {
    const { cluster, client } = start();
    cluster.faults.inject({ api: "InitProducerId", action: { kind: "lose-request" } });
    await expect(client.init()).rejects.toThrow(ConnectionLostError);
    expect(cluster.describe("role").ok).toBe(false);
    cluster.faults.inject({ api: "InitProducerId", action: { kind: "lose-answer" } });
    await expect(client.init()).rejects.toThrow(ConnectionLostError);
    expect(cluster.describe("role").ok).toBe(true);
  });

  it("aims a fault at a role, at a client and at a number of requests", async () => {
    const { cluster, client } = start();
    const code = KafkaCode.COORDINATOR_NOT_AVAILABLE;
    const action = { kind: "error", code } as const;
    cluster.faults.inject({ api: "InitProducerId", action, role: "another role" });
    cluster.faults.inject({ api: "InitProducerId", action, clientId: "another client" });
    const fault = cluster.faults.inject({ api: "InitProducerId", action, role: "role", clientId: "raw", times: 2 });
    expect([await client.init(), await client.init(), await client.init()]).toEqual([code, code, 0]);
    expect(fault.hits).toBe(2);
  });

  it("executes a held request when it is released", async () => {
    const { cluster, client } = start();
    await client.init();
    await client.add(target);
    const held = cluster.faults.inject({ api: "EndTxn", action: { kind: "hold-request" } });
    const end = client.end(true);
    await held.hit;
    expect(cluster.describe("role")).toMatchObject({ state: "Ongoing" });
    held.release();
    expect(await end).toBe(0);
  });

  it("executes a request at once when only its answer is held", async () => {
    const { clock, cluster, client } = start();
    await client.init();
    await client.add(target);
    const held = cluster.faults.inject({ api: "EndTxn", action: { kind: "hold-answer" } });
    const end = client.end(false);
    await clock.settle(held.hit);
    await clock.advance(0);
    expect(cluster.describe("role")).toMatchObject({ state: "CompleteAbort" });
    held.release();
    expect(await end).toBe(0);
  });

  it("places an event right before a request", async () => {
    const { cluster, client } = start();
    await client.init();
    const before = () => void cluster.mint("role");
    cluster.faults.inject({ api: "AddPartitionsToTxn", action: { kind: "run", before } });
    expect(await client.add(target)).toBe(KafkaCode.PRODUCER_FENCED);
  });

  it("delays a request by the clock", async () => {
    const { clock, cluster, client } = start();
    cluster.faults.inject({ api: "InitProducerId", action: { kind: "delay", ms: 50 } });
    await clock.settle(client.init());
    expect(clock.monotonicMs()).toBe(50);
  });

  it("takes latency both ways", async () => {
    const clock = new ManualClock();
    const cluster = new FakeCluster({ clock, latencyMs: () => 3 });
    await clock.settle(new RawClient(cluster, "role").init());
    expect(clock.monotonicMs()).toBe(6);
  });

  it("refuses requests at a broker that does not lead or coordinate", async () => {
    const { cluster } = start();
    const clientId = "raw";
    const notLeader = (cluster.leaderOf(target) + 1) % 3;
    const ask = { ...target, at: "latest", isolation: "read_committed" } as const;
    expect(await cluster.send({ api: "ListOffsets", ask, broker: notLeader, clientId })).toEqual({
      ok: false,
      code: KafkaCode.NOT_LEADER_OR_FOLLOWER,
    });
    const notCoordinator = (cluster.coordinatorOf("role") + 1) % 3;
    const describeAsk = { transactionalId: "role" };
    expect(
      await cluster.send({ api: "DescribeTransactions", ask: describeAsk, broker: notCoordinator, clientId }),
    ).toEqual({ ok: false, code: KafkaCode.NOT_COORDINATOR });
  });

  it("keeps records, fences and pairs when a broker stops", async () => {
    const { cluster, client } = start();
    await client.init();
    const old = client.pair;
    await client.init();
    await client.produce(target, 0, false, ["x"]);
    cluster.stopBroker(cluster.leaderOf(target));
    expect((await client.produce(target, 1, false, ["stale"], old)).code).toBe(KafkaCode.INVALID_PRODUCER_EPOCH);
    expect((await client.produce(target, 1, false, ["y"])).offset).toBe(1n);
    expect(cluster.describe("role")).toMatchObject(client.pair);
  });

  it("wakes a long-poll fetch by an append, and ends it after its wait", async () => {
    const { clock, cluster } = start();
    const fetch = () =>
      cluster.send({
        api: "Fetch",
        ask: { ...target, offset: 0n, isolation: "read_committed", maxWaitMs: 500 },
        broker: cluster.leaderOf(target),
        clientId: "raw",
      });
    expect(await clock.settle(fetch())).toMatchObject({ ok: true, batches: [] });
    expect(clock.monotonicMs()).toBe(500);
    const waiting = fetch();
    await clock.advance(100);
    cluster.append(target, [{ key: null, value: encodeUtf8("x"), headers: [] }]);
    expect(await clock.settle(waiting)).toMatchObject({ ok: true, batches: [{ lastOffset: 0n }] });
    expect(clock.monotonicMs()).toBe(600);
    expect(clock.pendingTimers).toBe(0);
  });

  it("repeats a marker until the partition's leader took it", async () => {
    const { clock, cluster, client } = start();
    await client.init();
    await client.add(target);
    await client.produce(target, 0, true, ["x"]);
    cluster.faults.inject({ api: "WriteTxnMarkers", action: { kind: "lose-request" }, times: 3 });
    await client.end(true);
    expect(cluster.read(target)).toEqual([]);
    await clock.advance(30);
    expect(cluster.read(target).length).toBe(1);
  });
});
