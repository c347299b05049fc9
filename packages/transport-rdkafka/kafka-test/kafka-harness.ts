import { setTimeout as sleep } from "node:timers/promises";
import type { ProducerPair, RawRecord, ReadRecord, Role, TopicPartition } from "@krabka/core";
import type { OpenTransaction, TransportHarness, WireFault, WireFaultHandle } from "@krabka/testing/conformance";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import kafkajs from "kafkajs";
import rdkafka from "node-rdkafka";
import { RdKafkaTransport } from "../src/index.js";
import { systemClock } from "../src/system-clock.js";

const API_KEYS = { InitProducerId: 22, AddPartitionsToTxn: 24, Produce: 0, EndTxn: 26 } as const;
const PATIENCE_MS = 10_000;

/** One broker behind a fault proxy. What "somebody else" does goes through kafkajs and a plain node-rdkafka consumer. */
export const startHarness = async (): Promise<KafkaHarness> => {
  const cluster = await startKafka({ proxied: true });
  return new KafkaHarness(cluster);
};

export class KafkaHarness implements TransportHarness {
  readonly clock = systemClock;
  readonly patienceMs = PATIENCE_MS;
  readonly cluster: KafkaCluster;
  /** Asks coordinators for the pairs of roles. */
  readonly describer: KafkaJsTransport;
  readonly #kafka: kafkajs.Kafka;
  readonly #admin: kafkajs.Admin;
  readonly #producer: kafkajs.Producer;
  readonly #open = new Set<kafkajs.Producer>();
  #connected: Promise<unknown> | undefined;
  #looker: Promise<CommittedLook> | undefined;

  constructor(cluster: KafkaCluster) {
    this.cluster = cluster;
    const config = {
      brokers: cluster.bootstrap.split(","),
      clientId: "harness",
      logLevel: kafkajs.logLevel.NOTHING,
    };
    this.#kafka = new kafkajs.Kafka(config);
    this.#admin = this.#kafka.admin();
    this.#producer = this.#kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
    this.describer = new KafkaJsTransport({ kafka: config, topic: "never-used" });
  }

  transport({ topic, faulty }: Parameters<TransportHarness["transport"]>[0]): RdKafkaTransport {
    const { bootstrap, proxiedBootstrap } = this.cluster;
    return new RdKafkaTransport({
      brokers: faulty ? (proxiedBootstrap ?? bootstrap) : bootstrap,
      topic: topic.name,
      partitions: topic.partitions,
      describer: this.describer,
      topicSettings: async (name) => new Map([["cleanup.policy", await this.#policyOf(name)]]),
    });
  }

  async createTopic(topic: string, numPartitions: number): Promise<void> {
    await this.#connect();
    await this.#admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1 }], waitForLeaders: true });
  }

  /** A topic whose broker takes records of at most this size. */
  async createNarrowTopic(topic: string, maxRecordBytes: number): Promise<void> {
    await this.#connect();
    const configEntries = [{ name: "max.message.bytes", value: String(maxRecordBytes) }];
    const wanted = { topic, numPartitions: 1, replicationFactor: 1, configEntries };
    await this.#admin.createTopics({ topics: [wanted], waitForLeaders: true });
  }

  async readCommitted(target: TopicPartition): Promise<readonly ReadRecord[]> {
    this.#looker ??= CommittedLook.start(this.cluster.bootstrap);
    return await (await this.#looker).read(target);
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

  async describeRole(role: Role): Promise<ProducerPair | undefined> {
    return (await this.describer.describe(role)).pair;
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

  moveLeader = (): Promise<void> => Promise.reject(new Error("There is one broker"));
  moveCoordinator = (): Promise<void> => Promise.reject(new Error("There is one broker"));
  forgetRole = (): Promise<void> => Promise.reject(new Error("Expiry takes days"));

  async close(): Promise<void> {
    await (await this.#looker)?.close();
    await this.describer.close();
    await Promise.all([...this.#open].map((producer) => producer.disconnect()));
    await this.#producer.disconnect();
    await this.#admin.disconnect();
    await this.cluster.close();
  }

  async #connect(): Promise<void> {
    this.#connected ??= Promise.all([this.#admin.connect(), this.#producer.connect()]);
    await this.#connected;
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
    await this.#connect();
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
}

/** Reads partitions from their start to their end with node-rdkafka's own consumer, one after the other. */
class CommittedLook {
  readonly #consumer: rdkafka.KafkaConsumer;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(consumer: rdkafka.KafkaConsumer) {
    this.#consumer = consumer;
  }

  static async start(bootstrap: string): Promise<CommittedLook> {
    const config = {
      "bootstrap.servers": bootstrap,
      "group.id": "harness",
      "enable.auto.commit": false,
      "enable.partition.eof": true,
      "fetch.wait.max.ms": 5,
    };
    const consumer = new rdkafka.KafkaConsumer(config, { "auto.offset.reset": "earliest" });
    await new Promise<void>((resolve, reject) => {
      consumer.connect({}, (error) => (error ? reject(error) : resolve()));
    });
    consumer.setDefaultConsumeTimeout(50);
    consumer.setDefaultConsumeLoopTimeoutDelay(0);
    consumer.consume();
    return new CommittedLook(consumer);
  }

  read(target: TopicPartition): Promise<readonly ReadRecord[]> {
    const records = this.#turn.then(() => this.#read(target));
    this.#turn = records.catch(() => undefined);
    return records;
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#consumer.disconnect(() => resolve());
    });
  }

  async #read({ topic, partition }: TopicPartition): Promise<readonly ReadRecord[]> {
    const records: ReadRecord[] = [];
    const onData = (message: rdkafka.Message): void => {
      const headers = (message.headers ?? []).flatMap((header) => Object.entries(header));
      records.push({
        offset: BigInt(message.offset),
        key: message.key as Uint8Array | null,
        value: message.value,
        headers: headers.map(([key, value]) => ({ key, value: value as Uint8Array })),
      });
    };
    this.#consumer.on("data", onData);
    const end = new Promise<void>((resolve) => {
      this.#consumer.once("partition.eof", () => resolve());
    });
    this.#consumer.incrementalAssign([{ topic, partition, offset: -2 }]);
    await end;
    this.#consumer.removeListener("data", onData);
    this.#consumer.incrementalUnassign([{ topic, partition }]);
    return records;
  }
}

const asMessage = ({ key, value, headers }: RawRecord): kafkajs.Message => ({
  key: key === null ? null : Buffer.from(key),
  value: value === null ? null : Buffer.from(value),
  headers: Object.fromEntries(headers.map((header) => [header.key, Buffer.from(header.value)])),
});
