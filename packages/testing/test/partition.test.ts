import { decodeUtf8, encodeUtf8 } from "@krabka/core";
import { FakeCluster, KafkaCode, ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { RawClient } from "./raw-client.js";

const target = { topic: "log", partition: 0 };

const start = async (options: Partial<ConstructorParameters<typeof FakeCluster>[0]> = {}) => {
  const clock = new ManualClock();
  const cluster = new FakeCluster({ clock, ...options });
  cluster.createTopic("log", { partitions: 1, cleanupPolicy: "compact", deleteRetentionMs: 1_000 });
  const client = new RawClient(cluster, "role");
  await client.init();
  return { clock, cluster, client, log: cluster.log(target) };
};

const values = (cluster: FakeCluster, isolation: "read_committed" | "read_uncommitted" = "read_committed") =>
  cluster.read(target, isolation).map(({ value }) => (value === null ? null : decodeUtf8(value)));

const keyed = (key: string, value: string | null) => ({
  key: encodeUtf8(key),
  value: value === null ? null : encodeUtf8(value),
  headers: [],
});

describe("A partition of the fake cluster", () => {
  it("gives a control marker an offset of its own", async () => {
    const { cluster, client, log } = await start();
    await client.add(target);
    await client.produce(target, 0, true, ["a", "b"]);
    expect(await client.end(true)).toBe(0);
    expect(log.highWatermark).toBe(3n);
    expect(cluster.append(target, [keyed("k", "c")])).toBe(3n);
    expect(values(cluster)).toEqual(["a", "b", "c"]);
  });

  it("holds the last stable offset at the start of the first open transaction", async () => {
    const { cluster, client, log } = await start();
    cluster.append(target, [keyed("k", "before")]);
    await client.add(target);
    await client.produce(target, 0, true, ["open"]);
    cluster.append(target, [keyed("k", "after")]);
    expect([log.lastStableOffset, log.highWatermark]).toEqual([1n, 3n]);
    expect(values(cluster)).toEqual(["before"]);
    expect(values(cluster, "read_uncommitted")).toEqual(["before", "open", "after"]);
    await client.end(false);
    expect([log.lastStableOffset, log.highWatermark]).toEqual([4n, 4n]);
    expect(values(cluster)).toEqual(["before", "after"]);
  });

  it("refuses an older epoch of a producer id from the newer one's first record on, and not before", async () => {
    const { client } = await start();
    const old = client.pair;
    expect((await client.produce(target, 0, false, ["a"])).code).toBe(0);
    await client.init();
    expect((await client.produce(target, 1, false, ["b"], old)).code).toBe(0);
    expect((await client.produce(target, 0, false, ["c"])).code).toBe(0);
    expect((await client.produce(target, 2, false, ["d"], old)).code).toBe(KafkaCode.INVALID_PRODUCER_EPOCH);
  });

  it("takes a repeated batch for the one it has, of the last five", async () => {
    const { client, log } = await start();
    for (let sequence = 0; sequence < 6; sequence++) await client.produce(target, sequence, false, ["x"]);
    expect(await client.produce(target, 3, false, ["x"])).toEqual({ code: 0, offset: 3n });
    expect(log.highWatermark).toBe(6n);
    expect((await client.produce(target, 0, false, ["x"])).code).toBe(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER);
  });

  it("refuses a gap in the sequence, and a new epoch that does not start at 0", async () => {
    const { client } = await start();
    await client.produce(target, 0, false, ["x"]);
    expect((await client.produce(target, 2, false, ["x"])).code).toBe(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER);
    await client.init();
    expect((await client.produce(target, 1, false, ["x"])).code).toBe(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER);
    expect((await client.produce(target, 0, false, ["x"])).code).toBe(0);
  });

  it("refuses a non-transactional batch of a producer whose transaction is open in this very partition", async () => {
    const { client } = await start();
    await client.add(target);
    await client.produce(target, 0, true, ["x"]);
    expect((await client.produce(target, 1, false, ["y"])).code).toBe(KafkaCode.INVALID_TXN_STATE);
    await client.end(true);
    expect((await client.produce(target, 1, false, ["y"])).code).toBe(0);
  });

  it("refuses a transactional batch for a partition that was not added to the transaction", async () => {
    const { client } = await start();
    expect((await client.produce(target, 0, true, ["x"])).code).toBe(KafkaCode.INVALID_TXN_STATE);
    await client.add(target);
    expect((await client.produce(target, 0, true, ["x"])).code).toBe(0);
  });

  it("forgets a producer that was silent for producer.id.expiration.ms, and then takes a stale epoch", async () => {
    const { clock, client } = await start({ producerIdExpirationMs: 1_000 });
    const old = client.pair;
    await client.init();
    await client.produce(target, 0, false, ["new"]);
    await clock.advance(999);
    expect((await client.produce(target, 0, false, ["stale"], old)).code).toBe(KafkaCode.INVALID_PRODUCER_EPOCH);
    await clock.advance(1);
    expect((await client.produce(target, 0, false, ["stale"], old)).code).toBe(0);
  });

  it("keeps the newest committed record of each key at its offset when it compacts", async () => {
    const { cluster, client, log } = await start();
    cluster.append(target, [keyed("a", "1"), keyed("b", "1"), keyed("a", "2")]);
    await client.add(target);
    await client.produceRecords(target, 0, true, [keyed("a", "aborted")]);
    await client.end(false);
    cluster.append(target, [keyed("c", "1")]);
    log.compact();
    expect(cluster.read(target).map(({ offset }) => offset)).toEqual([1n, 2n, 5n]);
    expect(cluster.read(target, "read_uncommitted").map(({ offset }) => offset)).toEqual([1n, 2n, 5n]);
  });

  it("keeps a tombstone for the delete retention and lets a reader get to the end without it", async () => {
    const { clock, cluster, log } = await start();
    cluster.append(target, [keyed("a", "1")]);
    cluster.append(target, [keyed("a", null)]);
    log.compact();
    expect(values(cluster)).toEqual([null]);
    await clock.advance(1_000);
    log.compact();
    expect(values(cluster)).toEqual([]);
    expect(log.highWatermark).toBe(2n);
    expect(log.read(0n, 2n)?.at(-1)?.lastOffset).toBe(1n);
  });

  it("does not compact from the last stable offset on", async () => {
    const { cluster, client, log } = await start();
    await client.add(target);
    await client.produce(target, 0, true, ["open"]);
    cluster.append(target, [keyed("a", "1"), keyed("a", "2")]);
    log.compact();
    expect(values(cluster, "read_uncommitted")).toEqual(["open", "1", "2"]);
  });

  it("takes no record without a key where it is compacted", async () => {
    const { cluster } = await start();
    const keyless = { key: null, value: encodeUtf8("x"), headers: [] };
    expect(() => cluster.append(target, [keyless])).toThrow(`code ${KafkaCode.INVALID_RECORD}`);
  });

  it("begins where its records were deleted up to", async () => {
    const { cluster, log } = await start();
    cluster.append(target, [keyed("a", "1"), keyed("b", "2"), keyed("c", "3")]);
    log.deleteRecords(2n);
    expect(values(cluster)).toEqual(["3"]);
    expect(log.read(1n, 3n)).toBeUndefined();
    log.deleteRecords(-1n);
    expect([log.startOffset, log.highWatermark]).toEqual([3n, 3n]);
    expect(cluster.append(target, [keyed("d", "4")])).toBe(3n);
  });

  it("stamps records with its own clock where the topic says so", async () => {
    const clock = new ManualClock({ wallMs: 5_000 });
    const cluster = new FakeCluster({ clock });
    cluster.createTopic("log", { partitions: 1, timestampType: "LogAppendTime" });
    await clock.advance(70);
    cluster.append(target, [keyed("a", "1")]);
    expect(cluster.log(target).read(0n, 1n)?.[0]?.appendedAtMs).toBe(5_070);
  });
});
