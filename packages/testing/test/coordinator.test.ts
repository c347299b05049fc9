import { FakeCluster, KafkaCode, ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { RawClient } from "./raw-client.js";

const target = { topic: "log", partition: 0 };

const start = async (options: Partial<ConstructorParameters<typeof FakeCluster>[0]> = {}) => {
  const clock = new ManualClock();
  const cluster = new FakeCluster({ clock, ...options });
  cluster.createTopic("log", { partitions: 1 });
  const client = new RawClient(cluster, "role");
  await client.init();
  return { clock, cluster, client };
};

describe("The fake transaction coordinator", () => {
  it("mints the next epoch of the same producer id each time", async () => {
    const { client } = await start();
    const { producerId } = client.pair;
    for (const epoch of [1, 2, 3]) {
      await client.init();
      expect(client.pair).toEqual({ producerId, epoch });
    }
  });

  it("answers CONCURRENT_TRANSACTIONS while it aborts an open transaction, and skips the epoch of that fence", async () => {
    const { clock, cluster, client } = await start();
    const rival = new RawClient(cluster, "role");
    await client.add(target);
    await client.produce(target, 0, true, ["x"]);
    expect(await rival.init()).toBe(KafkaCode.CONCURRENT_TRANSACTIONS);
    await clock.advance(0);
    expect(await rival.init()).toBe(0);
    expect(rival.pair.epoch).toBe(client.pair.epoch + 2);
    expect(cluster.read(target)).toEqual([]);
    expect(await client.end(true)).toBe(KafkaCode.PRODUCER_FENCED);
  });

  it("takes a repeated EndTxn for the same result and refuses a contrary one", async () => {
    for (const commit of [true, false]) {
      const { clock, client } = await start();
      expect(await client.end(commit)).toBe(KafkaCode.INVALID_TXN_STATE);
      await client.add(target);
      expect(await client.end(commit)).toBe(0);
      await clock.advance(0);
      expect(await client.end(commit)).toBe(0);
      expect(await client.end(!commit)).toBe(KafkaCode.INVALID_TXN_STATE);
    }
  });

  it("answers CONCURRENT_TRANSACTIONS to everything until the markers are written", async () => {
    const { clock, cluster, client } = await start({ markerDelayMs: 5 });
    await client.add(target);
    await client.end(true);
    expect(cluster.describe("role")).toMatchObject({ state: "PrepareCommit" });
    expect(await client.end(true)).toBe(KafkaCode.CONCURRENT_TRANSACTIONS);
    expect(await client.end(false)).toBe(KafkaCode.INVALID_TXN_STATE);
    expect(await client.add(target)).toBe(KafkaCode.CONCURRENT_TRANSACTIONS);
    expect(await client.init()).toBe(KafkaCode.CONCURRENT_TRANSACTIONS);
    await clock.advance(5);
    expect(cluster.describe("role")).toMatchObject({ state: "CompleteCommit" });
    expect(await client.add(target)).toBe(0);
  });

  it("keeps the epoch over commits", async () => {
    const { cluster, client } = await start();
    for (let round = 0; round < 3; round++) {
      await client.add(target);
      await client.produce(target, round, true, ["x"]);
      await client.end(true);
    }
    expect(cluster.describe("role")).toMatchObject(client.pair);
  });

  it("aborts a transaction after its timeout and ends the pair", async () => {
    const { clock, cluster, client } = await start();
    await client.add(target);
    await client.produce(target, 0, true, ["x"]);
    await clock.advance(59_999);
    expect(cluster.describe("role")).toMatchObject({ state: "Ongoing" });
    await clock.advance(1);
    expect(cluster.describe("role")).toMatchObject({ state: "CompleteAbort", epoch: client.pair.epoch + 1 });
    expect(await client.end(true)).toBe(KafkaCode.PRODUCER_FENCED);
    expect((await client.produce(target, 1, true, ["y"])).code).toBe(KafkaCode.INVALID_PRODUCER_EPOCH);
  });

  it("bumps the caller's own pair, recognises the repetition, and refuses after a foreign mint", async () => {
    const { cluster, client } = await start();
    const own = client.pair;
    expect(await client.init(own)).toBe(0);
    expect(client.pair.epoch).toBe(own.epoch + 1);
    expect(await client.init(own)).toBe(0);
    expect(client.pair.epoch).toBe(own.epoch + 1);
    const mine = client.pair;
    cluster.mint("role");
    expect(await client.init(mine)).toBe(KafkaCode.PRODUCER_FENCED);
    expect(await client.init({ producerId: 77n, epoch: 0 })).toBe(KafkaCode.PRODUCER_FENCED);
  });

  it("aborts the open transaction of a rival for a stale pair with the same producer id, as Kafka 4.1 does", async () => {
    const { cluster, client } = await start();
    const stale = client.pair;
    const rival = new RawClient(cluster, "role");
    await rival.init();
    await rival.add(target);
    expect(await client.init(stale)).toBe(KafkaCode.CONCURRENT_TRANSACTIONS);
    expect(await rival.end(true)).toBe(KafkaCode.PRODUCER_FENCED);
    expect(await client.init(stale)).toBe(KafkaCode.PRODUCER_FENCED);
  });

  it("hands out epochs up to 32766 and then a fresh id at epoch 0", async () => {
    const { cluster, client } = await start();
    const { producerId } = client.pair;
    cluster.setEpoch("role", 32_765);
    await client.init();
    expect(client.pair).toEqual({ producerId, epoch: 32_766 });
    await client.init();
    expect(client.pair.epoch).toBe(0);
    expect(client.pair.producerId).not.toBe(producerId);
  });

  it("recognises a repeated conditional bump over the change of the id", async () => {
    const { cluster, client } = await start();
    cluster.setEpoch("role", 32_766);
    const own = { ...client.pair, epoch: 32_766 };
    await client.init(own);
    const fresh = client.pair;
    expect(fresh.epoch).toBe(0);
    expect(await client.init(own)).toBe(0);
    expect(client.pair).toEqual(fresh);
  });

  it("never gives a pair twice when takeovers near the end of the epochs meet open transactions (A3)", async () => {
    const { clock, cluster, client } = await start({ markerDelayMs: 1 });
    cluster.setEpoch("role", 32_764);
    const seen = new Set<string>();
    for (let takeover = 0; takeover < 4; takeover++) {
      const leader = new RawClient(cluster, "role");
      await clock.settle(leader.mint());
      const { producerId, epoch } = leader.pair;
      expect(epoch).toBeGreaterThanOrEqual(0);
      expect(epoch).toBeLessThanOrEqual(32_766);
      seen.add(`${producerId}:${epoch}`);
      await leader.add(target);
      expect((await leader.produce(target, 0, true, [`${takeover}`])).code).toBe(0);
    }
    expect(seen.size).toBe(4);
    expect((await client.produce(target, 0, true, ["first"])).code).not.toBe(0);
  });

  it("can mint a lower id after the coordinator moved and the epoch was exhausted (A4)", async () => {
    const { cluster, client } = await start();
    expect(cluster.coordinatorOf("role")).toBe(2);
    expect(client.pair).toEqual({ producerId: 2_000n, epoch: 0 });
    cluster.setEpoch("role", 32_766);
    cluster.moveCoordinator("role", 1);
    await client.init();
    expect(client.pair).toEqual({ producerId: 1_000n, epoch: 0 });
  });

  it("gives a broker a fresh block after the last id of its own, and after a restart", async () => {
    const { cluster } = await start();
    cluster.setNextProducerId(0, 999n);
    const ids: bigint[] = [];
    for (const name of ["a", "b"]) {
      cluster.moveCoordinator(name, 0);
      ids.push(cluster.mint(name)?.producerId ?? -1n);
    }
    cluster.stopBroker(0);
    cluster.startBroker(0);
    cluster.moveCoordinator("c", 0);
    ids.push(cluster.mint("c")?.producerId ?? -1n);
    expect(ids).toEqual([999n, 3_000n, 4_000n]);
  });

  it("forgets an id that saw no transaction for transactional.id.expiration.ms", async () => {
    const { clock, cluster, client } = await start({ transactionalIdExpirationMs: 1_000 });
    await clock.advance(999);
    expect(await client.add(target)).toBe(0);
    expect(await client.end(true)).toBe(0);
    await clock.advance(1_000);
    expect(await client.add(target)).toBe(KafkaCode.INVALID_PRODUCER_ID_MAPPING);
    expect(cluster.describe("role")).toEqual({ ok: false, code: KafkaCode.TRANSACTIONAL_ID_NOT_FOUND });
    const old = client.pair;
    await client.init();
    expect(client.pair.producerId).toBeGreaterThan(old.producerId);
  });

  it("refuses a transaction timeout above the broker's maximum", async () => {
    const { client } = await start({ maxTransactionTimeoutMs: 59_999 });
    expect(await client.init()).toBe(KafkaCode.INVALID_TRANSACTION_TIMEOUT);
  });
});
