import { setTimeout as sleep } from "node:timers/promises";
import type { ProducerPair, RawRecord, ReadRecord, Role, TopicPartition, Transport } from "@krabka/core";
import type {
  HarnessTransportOptions,
  OpenTransaction,
  TransportHarness,
  WireFault,
  WireFaultHandle,
} from "@krabka/testing/conformance";
import { type KafkaCluster, moveCoordinator, moveLeader, type StartKafkaOptions } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { ClusterMap } from "../src/cluster-map.js";
import { NONE, TRANSACTIONAL_ID_NOT_FOUND } from "../src/error-codes.js";
import { openWire } from "../src/kafkajs-internals.js";
import { systemClock } from "../src/system-clock.js";
import { DESCRIBE_TRANSACTIONS, METADATA } from "../src/wire/api.js";
import { decodeMetadata, encodeMetadata } from "../src/wire/cluster-requests.js";
import { decodeDescribeTransactions, encodeDescribeTransactions } from "../src/wire/transaction-requests.js";
import { committedRecords } from "./committed-records.js";

const API_KEYS = { InitProducerId: 22, AddPartitionsToTxn: 24, Produce: 0, EndTxn: 26 } as const;
const PATIENCE_MS = 10_000;
const EXPIRY_LIMIT_MS = 30_000;

/** Three brokers that forget a role sooner than in days, but later than any test leaves one alone without meaning to. */
export const THREE_BROKERS = {
  brokers: 3,
  proxied: true,
  settings: {
    "transactional.id.expiration.ms": "6000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
  },
} as const satisfies StartKafkaOptions;

/**
 * Brokers behind a fault proxy. What "somebody else" writes goes through kafkajs's own producer; what they see is asked
 * of the brokers request by request.
 */
export abstract class KafkaHarness<T extends Transport = Transport> implements TransportHarness {
  readonly clock = systemClock;
  readonly patienceMs = PATIENCE_MS;
  readonly cluster: KafkaCluster;
  readonly #kafka: kafkajs.Kafka;
  readonly #admin: kafkajs.Admin;
  readonly #producer: kafkajs.Producer;
  readonly #wire;
  readonly #map: ClusterMap;
  readonly #open = new Set<kafkajs.Producer>();
  #connected: Promise<unknown> | undefined;

  constructor(cluster: KafkaCluster) {
    this.cluster = cluster;
    this.#kafka = new kafkajs.Kafka({
      brokers: cluster.bootstrap.split(","),
      clientId: "harness",
      logLevel: kafkajs.logLevel.NOTHING,
    });
    this.#admin = this.#kafka.admin();
    this.#producer = this.#kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
    this.#wire = openWire(this.#kafka, PATIENCE_MS);
    this.#map = new ClusterMap(this.#wire, systemClock, PATIENCE_MS);
  }

  abstract transport(options: HarnessTransportOptions): T;

  /** Where a transport finds the brokers. */
  protected bootstrapFor({ faulty }: HarnessTransportOptions): string {
    const { bootstrap, proxiedBootstrap } = this.cluster;
    return faulty ? (proxiedBootstrap ?? bootstrap) : bootstrap;
  }

  async createTopic(
    topic: string,
    numPartitions: number,
    settings: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    await this.#connect();
    const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
    const wanted = { topic, numPartitions, replicationFactor: this.cluster.brokers.length, configEntries };
    await this.#admin.createTopics({ topics: [wanted], waitForLeaders: false });
    for (const { id } of this.cluster.brokers) await this.#untilKnownTo(id, topic);
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
      () => committedRecords(this.#map, target),
      () => this.#map.forgetTopic(target.topic),
    );
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
    const fault = this.cluster.faults?.inject({ apiKey: API_KEYS[api], action });
    if (fault === undefined) throw new Error("The cluster has no fault proxy");
    return { hit: fault.hit, release: async () => fault.release() };
  }

  async cutConnections(): Promise<void> {
    this.cluster.faults?.cut();
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

  moveLeader(target: TopicPartition): Promise<void> {
    return moveLeader(this.cluster.bootstrap, target);
  }

  moveCoordinator(role: Role): Promise<void> {
    return moveCoordinator(this.cluster.bootstrap, role);
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
    await this.cluster.close();
  }

  async #connect(): Promise<void> {
    this.#connected ??= Promise.all([this.#admin.connect(), this.#producer.connect()]);
    await this.#connected;
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
