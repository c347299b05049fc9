import { encodeEntry, MemberId, NO_ATTRIBUTES, type ProducerPair, Role } from "@krabka/core";
import { ABSENT, type LocalError } from "@krabka/local";
import { ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { BrokerState } from "../../src/embedded/broker/broker-state.js";
import type { EmbeddedBroker } from "../../src/embedded/broker/embedded-broker.js";
import { sequenceAfter } from "../../src/embedded/broker/fences.js";
import { PartitionLog } from "../../src/embedded/broker/partition-log.js";
import { encodeRecord } from "../../src/embedded/broker/record-bytes.js";
import type { BrokerRequest } from "../../src/embedded/broker/request.js";
import { Disk } from "../disk.js";
import { bytes, openLog, rejection } from "../log-script.js";
import { openHost, settle } from "../service-script.js";
import { ask, basesOf, mint, openBroker, reasonOf, record, visible } from "./broker-script.js";

const LOG = { topic: "log", partition: 0 };
const STATE = { topic: "state", partition: 0 };

const openWithTopics = async (disk: Disk, options: Parameters<typeof openBroker>[1] = {}) => {
  const bench = await openBroker(disk, options);
  await ask(bench.broker, { kind: "create-topic", topic: LOG.topic, partitions: 2, compacted: false });
  await ask(bench.broker, { kind: "create-topic", topic: STATE.topic, partitions: 1, compacted: true });
  return bench;
};

describe("The broker's pairs", () => {
  it("ids start at zero and only grow, and a role keeps its own", async () => {
    const { broker } = await openBroker(new Disk());
    expect(await mint(broker, "a")).toEqual({ producerId: 0n, epoch: 0 });
    expect(await mint(broker, "b")).toEqual({ producerId: 1n, epoch: 0 });
    expect(await mint(broker, "a")).toEqual({ producerId: 0n, epoch: 1 });
    expect(await broker.describe("a")).toEqual({ producerId: 0n, epoch: 1 });
    expect(await broker.describe("c")).toBeUndefined();
  });

  it("after epoch 32766 comes a fresh id that is higher than every other, at epoch 0", () => {
    const state = new BrokerState();
    const mintNow = (role: string) =>
      state.apply({ atMs: 0, origin: undefined, request: { kind: "mint", role } }).answer;
    for (let epoch = 0; epoch <= 32766; epoch++) mintNow("role");
    mintNow("other");
    expect(state.roles.current("role")).toEqual({ producerId: 0n, epoch: 32766 });
    expect(mintNow("role")).toMatchObject({ pair: { producerId: 2n, epoch: 0 } });
  });

  it("a mint refuses the older pair in everything at once: commits, appends, retirements, re-mints", async () => {
    const { broker } = await openWithTopics(new Disk());
    const pair = await mint(broker, "role");
    const batch = { ...LOG, records: [record("k", "v")] };
    await basesOf(ask(broker, { kind: "append", role: "role", pair, sequence: 0, batch }));
    await mint(broker, "role");
    const of = { role: "role", pair } as const;
    expect(await reasonOf(ask(broker, { kind: "commit", ...of, batches: [batch] }))).toBe("fenced");
    expect(await reasonOf(ask(broker, { kind: "append", ...of, sequence: 1, batch }))).toBe("fenced");
    expect(await reasonOf(ask(broker, { kind: "retire", ...of, producerId: 9n, batch }))).toBe("fenced");
    expect(await reasonOf(ask(broker, { kind: "remint", ...of, unsettled: undefined }))).toBe("fenced");
    expect(visible(broker, LOG)).toEqual(["0 k=v"]);
  });

  it("appends go on after the last sequence number that their 32 bits take", async () => {
    const { broker } = await openWithTopics(new Disk());
    const pair = await mint(broker, "role");
    const last = 2 ** 32 - 1;
    broker.partition(LOG)?.fences.appended(pair, { sequence: last - 1, count: 1, base: 0n, atMs: 0 });
    const append = (sequence: number, ...keys: string[]) =>
      ask(broker, {
        kind: "append",
        role: "role",
        pair,
        sequence,
        batch: { ...LOG, records: keys.map((key) => record(key, "v")) },
      });
    await basesOf(append(last, "a", "b"));
    await basesOf(append(sequenceAfter(last, 2), "c"));
    expect(visible(broker, LOG)).toEqual(["0 a=v", "1 b=v", "2 c=v"]);
  });

  it("nobody hears of a mint before it is on the disk", async () => {
    const disk = new Disk();
    const { broker } = await openBroker(disk);
    let sync: () => void = () => undefined;
    disk.faults.sync = () =>
      new Promise<void>((resolve) => {
        sync = resolve;
      });
    const heard: string[] = [];
    void mint(broker, "role").then(() => heard.push("mint"));
    void broker.describe("role").then(() => heard.push("describe"));
    await settle();
    expect(heard).toEqual([]);
    sync();
    await settle();
    expect(heard).toEqual(["mint", "describe"]);
  });
});

describe("The broker's records", () => {
  it("a commit is one record of the log, so all of it is there or nothing", async () => {
    const { broker, log } = await openWithTopics(new Disk());
    const pair = await mint(broker, "role");
    const before = log.status().end;
    const batches = [
      { ...LOG, records: [record("a", "1"), record("b", "2")] },
      { topic: "log", partition: 1, records: [record("c", "3")] },
    ];
    expect(await basesOf(ask(broker, { kind: "commit", role: "role", pair, batches }))).toEqual([0n, 0n]);
    expect(log.status().end).toBe(before + 1n);
    const withFlaw = [...batches, { topic: "nowhere", partition: 0, records: [record("d", "4")] }];
    expect(await reasonOf(ask(broker, { kind: "commit", role: "role", pair, batches: withFlaw }))).toBe(
      "unknown-topic",
    );
    expect(log.status().end).toBe(before + 1n);
    expect(visible(broker, LOG)).toEqual(["0 a=1", "1 b=2"]);
  });

  it("an append that is repeated under its sequence number is answered again, also after a newer mint", async () => {
    const { broker } = await openWithTopics(new Disk());
    const pair = await mint(broker, "role");
    const append = { kind: "append", role: "role", pair, batch: { ...LOG, records: [record("k", "v")] } } as const;
    expect(await basesOf(ask(broker, { ...append, sequence: 0 }))).toEqual([0n]);
    expect(await basesOf(ask(broker, { ...append, sequence: 0 }))).toEqual([0n]);
    expect(await reasonOf(ask(broker, { ...append, sequence: 5 }))).toBe("invalid");
    await mint(broker, "role");
    expect(await basesOf(ask(broker, { ...append, sequence: 0 }))).toEqual([0n]);
    expect(visible(broker, LOG)).toEqual(["0 k=v"]);
  });

  it("a compacted topic keeps the newest record of each key at its offset, and takes none without a key", async () => {
    const disk = new Disk();
    const { broker } = await openWithTopics(disk);
    expect(
      await reasonOf(ask(broker, { kind: "append-unfenced", batch: { ...STATE, records: [record(null, "x")] } })),
    ).toBe("invalid");
    await basesOf(ask(broker, { kind: "append-unfenced", batch: { ...STATE, records: [record("first", "1")] } }));
    for (let round = 0; round < 1200; round++) {
      await basesOf(ask(broker, { kind: "append-unfenced", batch: { ...STATE, records: [record("k", `${round}`)] } }));
    }
    const found = visible(broker, STATE);
    expect(found.length).toBeLessThan(1000);
    expect([found[0], found.at(-1)]).toEqual(["0 first=1", "1200 k=1199"]);
    expect(
      await basesOf(ask(broker, { kind: "append-unfenced", batch: { ...STATE, records: [record("k", "last")] } })),
    ).toEqual([1201n]);
  });

  it("a removal stays for its horizon; a reader that missed it then has a gap, one that did not has none", async () => {
    const clock = new ManualClock();
    const { broker } = await openWithTopics(new Disk(), { clock, tombstoneMs: 1000 });
    const put = (key: string, value: string | null) =>
      basesOf(ask(broker, { kind: "append-unfenced", batch: { ...STATE, records: [record(key, value)] } }));
    const churn = async () => {
      for (let round = 0; round < 1500; round++) await put("churn", `${round}`);
    };
    await put("gone", "1");
    await put("gone", null);
    await churn();
    expect(visible(broker, STATE)).toContain("1 gone=-");
    await clock.advance(2000);
    await churn();
    expect(visible(broker, STATE)).not.toContain("1 gone=-");
    const log = broker.partition(STATE);
    expect([0n, 1n, 2n].map((from) => log?.hasGapAt(from))).toEqual([false, true, false]);
  });

  it("retention drops the oldest beyond its bytes or its records, and offsets go on", async () => {
    const { broker } = await openWithTopics(new Disk(), { retentionRecords: 3 });
    const put = (value: string) =>
      basesOf(ask(broker, { kind: "append-unfenced", batch: { ...LOG, records: [record(null, value)] } }));
    for (let round = 0; round < 10; round++) await put(`${round}`);
    expect(visible(broker, LOG)).toEqual(["7 -=7", "8 -=8", "9 -=9"]);
    expect(broker.partition(LOG)?.hasGapAt(6n)).toBe(true);

    const small = await openWithTopics(new Disk(), { retentionBytesInAll: 1800 });
    const fill = (partition: number) =>
      ask(small.broker, {
        kind: "append-unfenced",
        batch: { ...LOG, partition, records: [record(null, "x".repeat(60))] },
      });
    await fill(1);
    for (let round = 0; round < 10; round++) await fill(0);
    const kept = [0, 1].map((partition) => visible(small.broker, { ...LOG, partition }).length);
    expect(kept[1]).toBe(1);
    expect(kept[0]).toBeGreaterThan(1);
    expect(kept[0]).toBeLessThan(5);
    expect(await basesOf(fill(0))).toEqual([10n]);
  });

  it("readers see a record only when it is on the disk", async () => {
    const disk = new Disk();
    const { broker } = await openWithTopics(disk);
    let sync: () => void = () => undefined;
    disk.faults.sync = () =>
      new Promise<void>((resolve) => {
        sync = resolve;
      });
    const write = ask(broker, { kind: "append-unfenced", batch: { ...LOG, records: [record("k", "v")] } });
    await settle();
    expect(visible(broker, LOG)).toEqual([]);
    sync();
    await write;
    expect(visible(broker, LOG)).toEqual(["0 k=v"]);
  });
});

describe("A reader of a partition", () => {
  it("that reads while a record is on its way to the disk gets it afterwards", () => {
    const log = new PartitionLog(false);
    log.append([record("k", "shown")], 0);
    log.publish(log.end);
    log.append([record("k", "on its way")], 0);
    const slice = log.read(0n, 1000);
    expect(slice.records.map(({ offset }) => offset)).toEqual([0n]);
    log.publish(log.end);
    expect(log.read(slice.next, 1000).records.map(({ offset }) => offset)).toEqual([1n]);
  });

  it("gets pages of about the size it asked for, and every record once", () => {
    const log = new PartitionLog(false);
    for (let batch = 0; batch < 5; batch++) {
      log.append(
        Array.from({ length: 7 }, (_, index) => record(null, `${batch}.${index}`)),
        0,
      );
    }
    log.publish(log.end);
    const offsets: bigint[] = [];
    for (let from = 0n; from < log.visibleEnd; ) {
      const slice = log.read(from, 60);
      expect(slice.records.length).toBeLessThan(4);
      offsets.push(...slice.records.map(({ offset }) => offset));
      from = slice.next;
    }
    expect(offsets).toEqual([...Array(35).keys()].map(BigInt));
  });
});

describe("A request id", () => {
  const origin = (sequence: bigint, acked = 0n) => ({ client: "c".repeat(32), sequence, acked });

  it("is executed once and answered alike however often it comes, by the next owner too", async () => {
    const disk = new Disk();
    const { broker } = await openWithTopics(disk);
    await ask(broker, { kind: "register-client" }, origin(0n));
    const write = { kind: "append-unfenced", batch: { ...LOG, records: [record("k", "v")] } } as const;
    const first = await ask(broker, write, origin(1n));
    expect(await ask(broker, write, origin(1n))).toEqual(first);
    disk.unplug();
    const again = await openBroker(disk);
    expect(await ask(again.broker, write, origin(1n))).toEqual(first);
    expect(visible(again.broker, LOG)).toEqual(["0 k=v"]);
  });

  it("that its client gave up is refused, and so is one of a client that nobody knows", async () => {
    const { broker } = await openWithTopics(new Disk());
    const write = { kind: "append-unfenced", batch: { ...LOG, records: [record("k", "v")] } } as const;
    expect(await reasonOf(ask(broker, write, origin(1n)))).toBe("unknown-client");
    await ask(broker, { kind: "register-client" }, origin(0n));
    await basesOf(ask(broker, write, origin(3n, 2n)));
    expect(await reasonOf(ask(broker, write, origin(2n, 1n)))).toBe("outdated");
    expect(visible(broker, LOG)).toEqual(["0 k=v"]);
  });

  it("is settled by a re-mint: committed where it took effect, else never", async () => {
    const { broker } = await openWithTopics(new Disk());
    await ask(broker, { kind: "register-client" }, origin(0n));
    const pair = await mint(broker, "role");
    const batches = [{ ...LOG, records: [record("k", "v")] }];
    await basesOf(ask(broker, { kind: "commit", role: "role", pair, batches }, origin(1n)));
    const settled = await ask(broker, { kind: "remint", role: "role", pair, unsettled: 1n }, origin(2n));
    expect(settled).toMatchObject({ status: "minted", settled: { status: "written", bases: [0n] } });
    const next = settled.status === "minted" ? settled.pair : pair;
    const other = await ask(broker, { kind: "remint", role: "role", pair: next, unsettled: 3n }, origin(4n));
    expect(other).toMatchObject({ status: "minted", settled: null });
    expect(await reasonOf(ask(broker, { kind: "commit", role: "role", pair: next, batches }, origin(3n)))).toBe(
      "fenced",
    );
    expect(visible(broker, LOG)).toEqual(["0 k=v"]);
  });
});

describe("A broker's recovery", () => {
  it("a checkpoint and the records since then bring back what was there", async () => {
    const disk = new Disk();
    const clock = new ManualClock();
    const { broker, log } = await openWithTopics(disk, { clock, checkpointAfterBytes: 2000 });
    const pair = await mint(broker, "role");
    for (let round = 0; round < 100; round++) {
      const batches = [{ ...LOG, records: [record("k", `${round}`)] }];
      await basesOf(ask(broker, { kind: "commit", role: "role", pair, batches }));
    }
    await settle();
    expect(log.status().checkpointPosition).toBeGreaterThan(0n);
    const seen = visible(broker, LOG);
    disk.unplug();
    const again = await openBroker(disk, { clock });
    expect(visible(again.broker, LOG)).toEqual(seen);
    expect(await again.broker.describe("role")).toEqual(pair);
    again.broker.requireContinues(broker.sighting);
  });

  it("a state is the same after it was written and read back", async () => {
    const state = new BrokerState();
    const origin = { client: "c".repeat(32), sequence: 0n, acked: 0n };
    state.apply({ atMs: 1, origin, request: { kind: "register-client" } });
    state.apply({
      atMs: 1,
      origin: undefined,
      request: { kind: "create-topic", topic: "log", partitions: 2, compacted: false },
    });
    const minted = state.apply({
      atMs: 1,
      origin: { ...origin, sequence: 1n },
      request: { kind: "mint", role: "role" },
    }).answer;
    const pair = minted.status === "minted" ? minted.pair : { producerId: -1n, epoch: -1 };
    const batch = { ...LOG, records: [record("k", "v")] };
    state.apply({
      atMs: 2,
      origin: { ...origin, sequence: 2n },
      request: { kind: "append", role: "role", pair, sequence: 0, batch },
    });
    const bytesOfState = await state.snapshot().encode();
    expect(await BrokerState.decode(bytesOfState).snapshot().encode()).toEqual(bytesOfState);
    for (let cut = 0; cut < bytesOfState.length; cut++) {
      expect(() => BrokerState.decode(bytesOfState.subarray(0, cut)), `cut at ${cut}`).toThrow();
    }
  });

  it("a checkpoint is of one instant, though others go on writing while a large one is put together", async () => {
    const state = new BrokerState();
    const apply = (request: BrokerRequest) => state.apply({ atMs: 1, origin: undefined, request });
    for (const [topic, compacted] of [
      ["log", false],
      ["state", true],
    ] as const) {
      apply({ kind: "create-topic", topic, partitions: 1, compacted });
    }
    const put = (topic: string, key: string | null, value: string) =>
      apply({ kind: "append-unfenced", batch: { topic, partition: 0, records: [record(key, value)] } });
    for (let count = 0; count < 30; count++) put("log", null, "x".repeat(100_000));
    put("state", "k", "before");
    apply({ kind: "mint", role: "role" });
    const wanted = await state.snapshot().encode();
    const written = state.snapshot().encode();
    let isWritten = false;
    void written.then(() => {
      isWritten = true;
    });
    let changes = 0;
    for (; !isWritten; changes++) {
      put("log", null, "y");
      put("state", "k", "after");
      apply({ kind: "mint", role: "role" });
      state.topics.partition(LOG)?.publish(BigInt(changes));
      state.topics.partition(LOG)?.dropOldest();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(changes).toBeGreaterThan(1);
    expect(Buffer.from(await written).equals(wanted)).toBe(true);
  });

  it("refuses a log that is none of its own, with file and place", async () => {
    const disk = new Disk();
    const log = await openLog(disk);
    await log.append(bytes("something else"));
    await log.close();
    const error = await rejection(openBroker(disk));
    expect(error.code).toBe("DAMAGED");
    expect(error.message).toContain("something else than an embedded broker");
    expect(error.place?.file).toContain("segment-");
  });

  it("does not take a coordination service's directory for its own, nor that one a broker's", async () => {
    for (const withCheckpoint of [false, true]) {
      const [services, brokers] = [new Disk(), new Disk()];
      const host = await openHost({ disk: services, service: { checkpointAfterBytes: withCheckpoint ? 1 : 10_000 } });
      await host.service.compareAndSet("key", ABSENT, bytes("value"));
      await settle();
      services.unplug();
      expect((await rejection(openBroker(services))).code).toBe("DAMAGED");
      const bench = await openWithTopics(brokers, { checkpointAfterBytes: withCheckpoint ? 1 : 10_000 });
      await mint(bench.broker, "role");
      await settle();
      expect(bench.log.status().checkpointPosition !== undefined).toBe(withCheckpoint);
      brokers.unplug();
      expect((await rejection(openHost({ disk: brokers }))).code).toBe("DAMAGED");
    }
  });

  it("refuses everything after a failed sync, and knows after the next opening what was kept", async () => {
    const disk = new Disk();
    const { broker } = await openWithTopics(disk);
    disk.faults.sync = () => {
      throw new Error("EIO");
    };
    const failures: LocalError[] = [];
    broker.onEnd((error) => failures.push(error));
    const lost = await rejection(mint(broker, "role"));
    expect([lost.code, failures.length]).toEqual(["FAILED", 1]);
    disk.faults = {};
    expect((await rejection(mint(broker, "role"))).code).toBe("FAILED");
    expect((await rejection(broker.describe("role"))).code).toBe("FAILED");
    disk.kill();
    const again = await openBroker(disk);
    expect(await mint(again.broker, "role")).toEqual({ producerId: 0n, epoch: 0 });
  });
});

describe("What a broker forgets", () => {
  const COORDINATION = { topic: "coordination", partition: 0 };

  const lease = (role: string) =>
    encodeRecord({
      ...encodeEntry({
        kind: "lease",
        role: Role.of(role),
        member: MemberId.of("m"),
        pair: { producerId: 0n, epoch: 0 },
        term: undefined,
        grantedAtMs: 0n,
        deadlineMs: 0n,
        attributes: NO_ATTRIBUTES,
      }),
      timestampMs: 0,
    });

  const registration = (role: string, member: string) =>
    encodeRecord({
      ...encodeEntry({
        kind: "registration",
        role: Role.of(role),
        member: MemberId.of(member),
        registeredAtMs: 0n,
        attributes: NO_ATTRIBUTES,
      }),
      timestampMs: 0,
    });

  const open = async (disk: Disk) => {
    const bench = await openBroker(disk, { maxRoles: 4 });
    await ask(bench.broker, { kind: "create-topic", topic: "coordination", partitions: 1, compacted: true });
    return bench;
  };

  const append = (broker: EmbeddedBroker, role: string, pair: ProducerPair, sequence = 0) =>
    ask(broker, { kind: "append", role, pair, sequence, batch: { ...COORDINATION, records: [lease(role)] } });

  it("are the roles that were silent for longest: their pairs stay dead, their records are removed, their ids never return", async () => {
    const disk = new Disk();
    const { broker } = await open(disk);
    const pairs: ProducerPair[] = [];
    for (const role of ["a", "b", "c", "d"]) {
      const pair = await mint(broker, role);
      pairs.push(pair);
      await basesOf(append(broker, role, pair));
    }
    const [a, b] = pairs as [ProducerPair, ProducerPair];
    // The first one is heard once more, so the second one is the one to go.
    await basesOf(append(broker, "a", a, 1));
    await mint(broker, "e");
    const check = async (at: EmbeddedBroker): Promise<void> => {
      expect(await at.describe("b")).toBeUndefined();
      expect(await at.describe("a")).toEqual(a);
      const of = { role: "b", pair: b } as const;
      const batch = { ...COORDINATION, records: [lease("b")] };
      expect(await reasonOf(ask(at, { kind: "append", ...of, sequence: 1, batch }))).toBe("fenced");
      expect(await reasonOf(ask(at, { kind: "append", ...of, sequence: 0, batch }))).toBe("fenced");
      expect(await reasonOf(ask(at, { kind: "commit", ...of, batches: [batch] }))).toBe("fenced");
      expect(await reasonOf(ask(at, { kind: "retire", ...of, producerId: 9n, batch }))).toBe("fenced");
      expect(await reasonOf(ask(at, { kind: "remint", ...of, unsettled: undefined }))).toBe("fenced");
      const about = (role: string) => visible(at, COORDINATION).filter((line) => line.includes(`\0\x01${role}`));
      expect([about("b").length, about("b").at(-1)?.endsWith("=-")]).toEqual([2, true]);
      expect(about("a").length).toBe(2);
    };
    await check(broker);
    disk.unplug();
    const again = await open(disk);
    await check(again.broker);
    expect(await mint(again.broker, "b")).toEqual({ producerId: 5n, epoch: 0 });
    expect(await reasonOf(append(again.broker, "b", b, 1))).toBe("fenced");
    // A leader that is heard all the time keeps its pair, however many others come and go.
    for (let round = 0; round < 50; round++) {
      await mint(again.broker, `other ${round}`);
      await basesOf(append(again.broker, "a", a, 2 + round));
    }
    expect(await again.broker.describe("a")).toEqual(a);
    expect(await reasonOf(ask(again.broker, { kind: "forget-roles", count: 9 }, origin(9n)))).toBe("unknown-client");
  });

  const origin = (sequence: bigint, client = "c".repeat(32)) => ({ client, sequence, acked: 0n });

  it("is up to the owner alone, as is the opening of the log", async () => {
    const { broker } = await open(new Disk());
    await ask(broker, { kind: "register-client" }, origin(0n));
    await mint(broker, "a");
    expect(await reasonOf(ask(broker, { kind: "forget-roles", count: 1 }, origin(1n)))).toBe("invalid");
    const forged = { kind: "open", name: "forged", position: 99n, raiseBy: 5n } as const;
    expect(await reasonOf(ask(broker, forged, origin(2n)))).toBe("invalid");
    expect(await broker.describe("a")).toEqual({ producerId: 0n, epoch: 0 });
  });

  it("are roles whose removals stand at the same offsets after a replay, also where compaction came in between", async () => {
    const disk = new Disk();
    const { broker } = await open(disk);
    const put = (...records: Uint8Array[]) =>
      ask(broker, { kind: "append-unfenced", batch: { ...COORDINATION, records } });
    for (const member of ["m1", "m2", "m1"]) await put(registration("a", member));
    for (let round = 0; round < 3; round++) await put(...Array.from({ length: 500 }, () => record("other", "v")));
    for (const role of ["a", "b", "c", "d", "e"]) await mint(broker, role);
    const removals = (at: EmbeddedBroker) => visible(at, COORDINATION).filter((line) => line.endsWith("=-"));
    const before = removals(broker);
    expect(before).toHaveLength(2);
    disk.unplug();
    expect(removals((await open(disk)).broker)).toEqual(before);
  });

  it("are tombstones beyond a thousand: a reader that missed one has a gap, one that read it has none", async () => {
    const { broker } = await openWithTopics(new Disk());
    const put = (key: string, value: string | null) =>
      ask(broker, { kind: "append-unfenced", batch: { ...STATE, records: [record(key, value)] } });
    for (let round = 0; round < 3000; round += 100) {
      await Promise.all(Array.from({ length: 100 }, (_, index) => put(`${round + index}`, null)));
    }
    const log = broker.partition(STATE);
    const tombstones = visible(broker, STATE).filter((line) => line.endsWith("=-"));
    expect(tombstones.length).toBeLessThan(2100);
    expect(tombstones.length).toBeGreaterThanOrEqual(1000);
    expect([log?.hasGapAt(1n), log?.hasGapAt(3000n)]).toEqual([true, false]);
  });

  it("are clients beyond ten thousand that were silent for longest, with the answers to what they asked", async () => {
    const { broker } = await openWithTopics(new Disk());
    const client = (index: number) => index.toString(16).padStart(32, "0");
    const write = { kind: "append-unfenced", batch: { ...LOG, records: [record("k", "v")] } } as const;
    await Promise.all([0, 1].map((index) => ask(broker, { kind: "register-client" }, origin(0n, client(index)))));
    await ask(broker, write, origin(1n, client(0)));
    const others = Array.from({ length: 9_999 }, (_, index) => client(index + 2));
    await Promise.all(others.map((other) => ask(broker, { kind: "register-client" }, origin(0n, other))));
    expect([0, 1, 2].map((index) => broker.isKnown(client(index)))).toEqual([true, false, true]);
    expect(await reasonOf(ask(broker, write, origin(1n, client(1))))).toBe("unknown-client");
  });

  it("are small records as well: what each write takes besides its bytes counts", async () => {
    const { broker } = await openWithTopics(new Disk(), { retentionBytes: 100_000 });
    for (let round = 0; round < 1000; round++) {
      void ask(broker, { kind: "append-unfenced", batch: { ...LOG, records: [record(null, "x")] } });
    }
    await ask(broker, { kind: "append-unfenced", batch: { ...LOG, records: [record(null, "x")] } });
    const kept = visible(broker, LOG).length;
    expect(kept).toBeLessThan(300);
    expect(kept).toBeGreaterThan(250);
  });
});
