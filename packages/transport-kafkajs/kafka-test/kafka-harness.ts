import { setTimeout as sleep } from "node:timers/promises";
import type { ProducerPair, RawRecord, ReadRecord, Role, TopicPartition } from "@krabka/core";
import type { OpenTransaction, TransportHarness, WireFault, WireFaultHandle } from "@krabka/testing/conformance";
import { type KafkaCluster, type StartKafkaOptions, startKafka } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { ClusterMap } from "../src/cluster-map.js";
import { decompress } from "../src/decompress.js";
import { NONE, TRANSACTIONAL_ID_NOT_FOUND } from "../src/error-codes.js";
import { KafkaJsTransport, type LeaseRecords } from "../src/index.js";
import { openWire } from "../src/kafkajs-internals.js";
import { systemClock } from "../src/system-clock.js";
import { DESCRIBE_TRANSACTIONS, FETCH, LIST_OFFSETS, METADATA } from "../src/wire/api.js";
import { decodeMetadata, encodeMetadata } from "../src/wire/cluster-requests.js";
import {
  decodeFetch,
  decodeListOffsets,
  encodeFetch,
  encodeListOffsets,
  type FetchedPartition,
} from "../src/wire/log-requests.js";
import { decodeBatches, type FetchedBatch } from "../src/wire/record-batch.js";
import { decodeDescribeTransactions, encodeDescribeTransactions } from "../src/wire/transaction-requests.js";
import { LeaderMoves } from "./leader-moves.js";

const API_KEYS = { InitProducerId: 22, AddPartitionsToTxn: 24, Produce: 0, EndTxn: 26 } as const;
const PATIENCE_MS = 10_000;
const EXPIRY_LIMIT_MS = 30_000;
const { logLevel } = kafkajs;

const client = (bootstrap: string) => ({
  brokers: bootstrap.split(","),
  clientId: "harness",
  logLevel: logLevel.NOTHING,
});

/** Brokers behind a fault proxy. Writes of "somebody else" go through kafkajs's own producer. */
export const startHarness = async (
  leaseRecords: LeaseRecords,
  options: Pick<StartKafkaOptions, "brokers" | "settings"> = {},
): Promise<TransportHarness> => new KafkaHarness(await startKafka({ proxied: true, ...options }), leaseRecords);

class KafkaHarness implements TransportHarness {
  readonly clock = systemClock;
  readonly patienceMs = PATIENCE_MS;
  readonly #cluster: KafkaCluster;
  readonly #leaseRecords: LeaseRecords;
  readonly #kafka: kafkajs.Kafka;
  readonly #admin: kafkajs.Admin;
  readonly #producer: kafkajs.Producer;
  readonly #wire;
  readonly #map: ClusterMap;
  readonly #moves: LeaderMoves;
  #connected: Promise<unknown> | undefined;

  constructor(cluster: KafkaCluster, leaseRecords: LeaseRecords) {
    this.#cluster = cluster;
    this.#leaseRecords = leaseRecords;
    this.#kafka = new kafkajs.Kafka(client(cluster.bootstrap));
    this.#admin = this.#kafka.admin();
    this.#producer = this.#kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
    this.#wire = openWire(this.#kafka, PATIENCE_MS);
    this.#map = new ClusterMap(this.#wire, systemClock, PATIENCE_MS);
    this.#moves = new LeaderMoves(this.#admin, this.#map);
  }

  transport({ topic, faulty }: Parameters<TransportHarness["transport"]>[0]): KafkaJsTransport {
    const { bootstrap, proxiedBootstrap } = this.#cluster;
    return new KafkaJsTransport({
      kafka: { ...client(faulty ? (proxiedBootstrap ?? bootstrap) : bootstrap), clientId: "conformance" },
      topic: topic.name,
      partitions: topic.partitions,
      leaseRecords: this.#leaseRecords,
    });
  }

  async createTopic(topic: string, numPartitions: number): Promise<void> {
    await this.#connect();
    const replicationFactor = this.#cluster.brokers.length;
    await this.#admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor }], waitForLeaders: false });
    for (const { id } of this.#cluster.brokers) await this.#untilKnownTo(id, topic);
  }

  /** One broker's word that a topic exists is not yet every broker's. */
  async #untilKnownTo(nodeId: number, topic: string): Promise<void> {
    const deadline = this.#map.deadline(undefined);
    await this.#map.metadata("", deadline);
    for (;;) {
      const request = { api: METADATA, encode: () => encodeMetadata([topic]) };
      const { topics } = decodeMetadata(await this.#map.ask(nodeId, "write", request, deadline));
      if (topics[0]?.code === NONE && topics[0].partitions.every(({ leader }) => leader >= 0)) return;
      await deadline.pause(10);
    }
  }

  readCommitted(target: TopicPartition): Promise<readonly ReadRecord[]> {
    return settled(
      () => this.#readCommitted(target),
      () => this.#map.forgetTopic(target.topic),
    );
  }

  async #readCommitted(target: TopicPartition): Promise<readonly ReadRecord[]> {
    const deadline = this.#map.deadline(undefined);
    const { nodeId } = await this.#map.leaderOf(target.topic, target.partition, deadline);
    const start = await this.#map.ask(
      nodeId,
      "write",
      { api: LIST_OFFSETS, encode: () => encodeListOffsets(target.topic, target.partition, -1, "start") },
      deadline,
    );
    const records: ReadRecord[] = [];
    let position = decodeListOffsets(start)[0]?.offset ?? 0n;
    for (;;) {
      const { fetched, batches } = await this.#fetchCommitted(nodeId, target, position);
      records.push(...committedRecords(fetched, batches).filter(({ offset }) => offset >= position));
      const last = batches.at(-1);
      if (last === undefined || last.lastOffset < position) return records;
      position = last.lastOffset + 1n;
    }
  }

  async appendRaw({ topic, partition }: TopicPartition, records: readonly RawRecord[]): Promise<bigint> {
    await this.#connect();
    const messages = records.map((record) => ({ ...asMessage(record), partition }));
    const append = async () => {
      const [metadata] = await this.#producer.send({ topic, acks: -1, messages });
      return BigInt(metadata?.baseOffset ?? -1);
    };
    // A compacted topic takes no record without a key; one that was compacted later may hold some.
    return records.some(({ key }) => key === null) ? this.#withPolicy(topic, "delete", append) : append();
  }

  describeRole(role: Role): Promise<ProducerPair | undefined> {
    return settled(
      () => this.#describeRole(role),
      () => this.#map.forgetCoordinator(role),
    );
  }

  async #describeRole(role: Role): Promise<ProducerPair | undefined> {
    const deadline = this.#map.deadline(undefined);
    const nodeId = await this.#map.coordinatorOf(role, deadline);
    const request = { api: DESCRIBE_TRANSACTIONS, encode: () => encodeDescribeTransactions(role) };
    const found = decodeDescribeTransactions(await this.#map.ask(nodeId, "write", request, deadline))[0];
    if (found?.code === TRANSACTIONAL_ID_NOT_FOUND) return undefined;
    if (found?.code !== NONE) throw new Error(`DescribeTransactions was answered with ${found?.code}`);
    return found.pair.epoch < 0 ? undefined : found.pair;
  }

  async injectFault({ api, effect }: WireFault): Promise<WireFaultHandle> {
    const action = effect === "lose-answer" ? "cut-after" : ({ hold: true } as const);
    const fault = this.#cluster.faults?.inject({ apiKey: API_KEYS[api], action });
    if (fault === undefined) throw new Error("The cluster has no fault proxy");
    return { hit: fault.hit, release: async () => fault.release() };
  }

  async cutConnections(): Promise<void> {
    this.#cluster.faults?.cut();
  }

  async startTransaction(
    transactionalId: string,
    records: Parameters<TransportHarness["startTransaction"]>[1],
  ): Promise<OpenTransaction> {
    const producer = this.#kafka.producer({
      transactionalId,
      idempotent: true,
      maxInFlightRequests: 1,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
      retry: { initialRetryTime: 5, retries: 20 },
    });
    await producer.connect();
    this.#open.add(producer);
    const transaction = await producer.transaction();
    for (const record of records) {
      const message = { ...asMessage(record), partition: record.partition ?? 0 };
      await transaction.send({ topic: record.topic, acks: -1, messages: [message] });
    }
    return {
      end: async (result) => {
        await (result === "commit" ? transaction.commit() : transaction.abort());
        this.#open.delete(producer);
        await producer.disconnect();
      },
    };
  }

  readonly #open = new Set<kafkajs.Producer>();

  async deleteRecords({ topic, partition }: TopicPartition): Promise<bigint> {
    await this.#connect();
    // Brokers refuse it for topics that are only compacted.
    await this.#withPolicy(topic, "compact,delete", () =>
      this.#admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: "-1" }] }),
    );
    const offsets = await this.#admin.fetchTopicOffsets(topic);
    return BigInt(offsets.find((entry) => entry.partition === partition)?.low ?? -1);
  }

  /** Works under another clean-up policy, then puts the old one back. A new policy takes a moment to arrive. */
  async #withPolicy<T>(topic: string, policy: string, work: () => Promise<T>): Promise<T> {
    const before = await this.#policyOf(topic);
    if (before.includes(policy)) return work();
    await this.#setPolicy(topic, policy);
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          return await work();
        } catch (error) {
          if (attempt === 50) throw error;
          await sleep(20);
        }
      }
    } finally {
      await this.#setPolicy(topic, before);
    }
  }

  async #policyOf(name: string): Promise<string> {
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name, configNames: ["cleanup.policy"] };
    const { resources } = await this.#admin.describeConfigs({ resources: [resource], includeSynonyms: false });
    return resources[0]?.configEntries[0]?.configValue ?? "";
  }

  async #setPolicy(name: string, value: string): Promise<void> {
    const configEntries = [
      { name: "cleanup.policy", value },
      { name: "message.timestamp.type", value: "LogAppendTime" },
    ];
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name, configEntries };
    await this.#admin.alterConfigs({ resources: [resource], validateOnly: false });
  }

  async moveLeader(target: TopicPartition): Promise<void> {
    await this.#connect();
    await this.#moves.move(target);
  }

  async moveCoordinator(role: Role): Promise<void> {
    await this.#connect();
    await this.#moves.moveCoordinator(role);
  }

  async forgetRole(role: Role): Promise<void> {
    const giveUpAtMs = performance.now() + EXPIRY_LIMIT_MS;
    while ((await this.describeRole(role)) !== undefined) {
      if (performance.now() > giveUpAtMs) throw new Error(`The coordinator still knows ${role}`);
      await sleep(50);
    }
  }

  async close(): Promise<void> {
    await this.#wire.close();
    await Promise.all([...this.#open].map((producer) => producer.disconnect()));
    await this.#producer.disconnect();
    await this.#admin.disconnect();
    await this.#cluster.close();
  }

  async #connect(): Promise<void> {
    this.#connected ??= Promise.all([this.#admin.connect(), this.#producer.connect()]);
    await this.#connected;
  }

  async #fetchCommitted(nodeId: number, { topic, partition }: TopicPartition, fetchOffset: bigint) {
    const partitions = [{ partition, leaderEpoch: -1, fetchOffset, lastFetchedEpoch: -1 }];
    const encode = () => encodeFetch({ topic, partitions, maxWaitMs: 0, committedOnly: true, maxBytes: 1 << 24 });
    const answer = await this.#map.ask(nodeId, "write", { api: FETCH, encode }, this.#map.deadline(undefined));
    const fetched = decodeFetch(answer).partitions[0];
    if (fetched === undefined || fetched.code !== 0) throw new Error(`Fetch was answered with ${fetched?.code}`);
    return { fetched, batches: await decodeBatches(fetched.records, decompress) };
  }
}

/** Looks until there is an answer: whoever led before may not know yet that it does not any more. */
const settled = async <T>(look: () => Promise<T>, forget: () => void): Promise<T> => {
  for (let attempt = 0; ; attempt++) {
    try {
      return await look();
    } catch (error) {
      if (attempt === 50) throw error;
      forget();
      await sleep(20);
    }
  }
};

const asMessage = ({ key, value, headers }: RawRecord): kafkajs.Message => ({
  key: key === null ? null : Buffer.from(key),
  value: value === null ? null : Buffer.from(value),
  headers: Object.fromEntries(headers.map((header) => [header.key, Buffer.from(header.value)])),
});

/** What is left of a committed read without the transactions that the broker lists as aborted. */
const committedRecords = (fetched: FetchedPartition, batches: readonly FetchedBatch[]): ReadRecord[] => {
  const records: ReadRecord[] = [];
  for (const [index, batch] of batches.entries()) {
    if (batch.content.kind !== "records") continue;
    const aborted = fetched.aborted.some(
      ({ producerId, firstOffset }) =>
        producerId === batch.producerId &&
        firstOffset <= batch.baseOffset &&
        batches.slice(0, index).every((earlier) => !endsTransaction(earlier, producerId, firstOffset)),
    );
    if (!(batch.transactional && aborted)) records.push(...batch.content.records);
  }
  return records;
};

const endsTransaction = (batch: FetchedBatch, producerId: bigint, firstOffset: bigint): boolean =>
  batch.content.kind === "marker" && batch.producerId === producerId && batch.baseOffset > firstOffset;
