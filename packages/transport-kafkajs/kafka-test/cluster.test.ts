import { setTimeout as sleep } from "node:timers/promises";
import {
  encodeEntry,
  type FeedListener,
  KrabkaError,
  MemberId,
  NO_ATTRIBUTES,
  partitionForRole,
  type RawRecord,
  Role,
  type TopicPartition,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { KafkaJsTransport } from "../src/index.js";
import { silentListener } from "./silent-listener.js";

const TOPIC = "__coordination_state";
const SESSION = { transactionTimeoutMs: 30_000, mayMint: () => true };
const LIMIT = { timeoutMs: 30_000 };

const lease = (role: Role, { pair }: WriterSession): RawRecord =>
  encodeEntry({
    kind: "lease",
    role,
    member: MemberId.of("node-1"),
    pair,
    term: undefined,
    grantedAtMs: 1n,
    deadlineMs: 2n,
    attributes: NO_ATTRIBUTES,
  });

const committed = (outcome: WriteOutcome): bigint => {
  if (outcome.status !== "committed")
    throw new Error(`Expected committed; got ${outcome.status}`, { cause: outcome.cause });
  return outcome.positions[0]?.offset ?? -1n;
};

const home = (role: Role): TopicPartition => ({ topic: TOPIC, partition: partitionForRole(role) });

/** Mints, and asks again while the coordinator still ends the transaction before. */
const mint = async (transport: KafkaJsTransport, role: Role): Promise<WriterSession> => {
  for (let attempt = 0; ; attempt++) {
    try {
      return await transport.openSession(role, { ...SESSION, ...LIMIT });
    } catch (error) {
      if (!(KrabkaError.is(error) && error.code === "BUSY") || attempt === 200) throw error;
      await sleep(20);
    }
  }
};

describe("kafkajs on three brokers", () => {
  let cluster: KafkaCluster;
  let admin: kafkajs.Admin;
  const transports: KafkaJsTransport[] = [];

  const transport = async (): Promise<KafkaJsTransport> => {
    const opened = new KafkaJsTransport({
      kafka: { brokers: cluster.bootstrap.split(","), logLevel: kafkajs.logLevel.NOTHING },
      requestTimeoutMs: 3000,
    });
    transports.push(opened);
    await opened.prepare(LIMIT);
    return opened;
  };

  const leaderOf = async ({ topic, partition }: TopicPartition): Promise<number> => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return topics[0]?.partitions.find(({ partitionId }) => partitionId === partition)?.leader ?? -1;
  };

  const allInSync = async (): Promise<void> => {
    for (;;) {
      const { topics } = await admin.fetchTopicMetadata({ topics: [TOPIC, "__transaction_state"] });
      const partitions = topics.flatMap((topic) => topic.partitions);
      if (partitions.every(({ isr, replicas }) => isr.length === replicas.length)) return;
      await sleep(100);
    }
  };

  beforeAll(async () => {
    cluster = await startKafka({ brokers: 3 });
    const brokers = cluster.bootstrap.split(",");
    admin = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING }).admin();
    await admin.connect();
  });

  afterEach(async () => {
    await Promise.all(transports.splice(0).map((opened) => opened.close()));
  });

  afterAll(async () => {
    await admin?.disconnect();
    await cluster?.close();
  });

  it("creates the topic with three replicas, two of them in sync, and says nothing to warn of", async () => {
    const prepared = await (await transport()).prepare();
    expect(prepared).toEqual({ topic: { name: TOPIC, partitions: 16 }, warnings: [] });
    const { topics } = await admin.fetchTopicMetadata({ topics: [TOPIC] });
    expect(topics[0]?.partitions.every(({ replicas }) => replicas.length === 3)).toBe(true);
  });

  it.each(["kill", "pause"] as const)(
    "goes on after a %s of the broker that leads the role's partition",
    async (fault) => {
      const [one, other] = [await transport(), await transport()];
      const role = Role.of(`survives-${fault}`);
      const seen: bigint[] = [];
      const onRecords: FeedListener["onRecords"] = (records) => seen.push(...records.map(({ offset }) => offset));
      const feed = one.follow(role, { ...silentListener, onRecords });
      const earlier = await mint(one, role);
      committed(await earlier.append(home(role), [lease(role, earlier)], LIMIT));
      const later = await mint(other, role);
      const grant = committed(await later.append(home(role), [lease(role, later)], LIMIT));
      await feed.sync(LIMIT);
      await allInSync();
      const leader = await leaderOf(home(role));
      const broker = cluster.brokers.find(({ id }) => id === leader);
      if (broker === undefined) throw new Error(`No broker ${leader}`);
      await broker[fault]();
      try {
        const renewal = await later.append(home(role), [lease(role, later)], LIMIT);
        const next = committed(renewal);
        expect((await earlier.append(home(role), [lease(role, earlier)], LIMIT)).status).toBe("fenced");
        expect(await feed.sync(LIMIT)).toBeGreaterThan(next);
        expect(seen).toEqual([...new Set(seen)].sort((x, y) => Number(x - y)));
        expect(seen).toContain(grant);
        expect(seen).toContain(next);
        expect((await one.describe(role, LIMIT)).pair).toEqual(later.pair);
        if (later.mustRemint) await later.remint(LIMIT);
        committed(await later.commit([{ ...lease(role, later), ...home(role) }], LIMIT));
        const third = await mint(one, role);
        expect((await later.commit([{ ...lease(role, later), ...home(role) }], LIMIT)).status).toBe("fenced");
        committed(await third.append(home(role), [lease(role, third)], LIMIT));
      } finally {
        if (fault === "kill") await broker.start();
        else broker.resume();
      }
    },
  );
});
