import { type CoordinationTopic, KrabkaError, type Prepared } from "@krabka/core";
import { nativeCalls } from "./call-gate.js";
import type { ClientConfig } from "./client-config.js";
import type { Deadline } from "./deadline.js";
import { createTopic, type NativeError, type NativeMetadata } from "./native-binding.js";
import { codeOf, errorOf, TOPIC_ALREADY_EXISTS } from "./native-errors.js";
import type { SteadyConsumer } from "./steady-consumer.js";

/** Settings of a topic by name, read by other means than librdkafka's. */
export type TopicSettings = (topic: string) => Promise<ReadonlyMap<string, string>>;

type FoundTopic = NativeMetadata["topics"][number];

const DEFAULT_REPLICATION = 3;
const CREATE_MS = 2_000;

/** The same settings as those of the kafkajs transport: whichever member is first creates the topic. */
const settingsFor = (replicationFactor: number): Record<string, string> => ({
  "cleanup.policy": "compact",
  "min.insync.replicas": replicationFactor >= 3 ? "2" : "1",
  "unclean.leader.election.enable": "false",
  "message.timestamp.type": "LogAppendTime",
  "segment.ms": "300000",
  "segment.bytes": "1048576",
  "min.cleanable.dirty.ratio": "0.01",
  "min.compaction.lag.ms": "0",
  "max.compaction.lag.ms": "600000",
  "delete.retention.ms": "86400000",
});

/** Creates the coordination topic where it is absent, then checks what can be seen of it. */
export class TopicSetup {
  readonly #config: ClientConfig;
  readonly #consumer: SteadyConsumer;
  readonly #topicSettings: TopicSettings | undefined;

  constructor(config: ClientConfig, consumer: SteadyConsumer, topicSettings: TopicSettings | undefined) {
    this.#config = config;
    this.#consumer = consumer;
    this.#topicSettings = topicSettings;
  }

  /** @throws {KrabkaError} as `Transport.prepare` */
  async prepare(wanted: CoordinationTopic, deadline: Deadline): Promise<Prepared> {
    const { topics, brokers } = await this.#consumer.metadata(wanted.name, deadline);
    const existing = topics.find(({ name, partitions }) => name === wanted.name && partitions.length > 0);
    const found = existing ?? (await this.#create(wanted, brokers.length, deadline));
    if (found.partitions.length !== wanted.partitions) {
      throw misconfigured(wanted.name, "partition count", found.partitions.length, wanted.partitions);
    }
    const warnings = await this.#checkPolicy(wanted.name, existing !== undefined, deadline);
    const replicas = Math.min(...found.partitions.map((partition) => partition.replicas.length));
    if (replicas === 1) {
      const name = JSON.stringify(wanted.name);
      warnings.push(`Topic ${name} has replication factor 1: the loss of one broker loses the roles; 3 is advised`);
    }
    return { topic: { name: wanted.name, partitions: wanted.partitions }, warnings };
  }

  async #checkPolicy(topic: string, existed: boolean, deadline: Deadline): Promise<string[]> {
    if (this.#topicSettings !== undefined) {
      const policy = (await deadline.race(this.#topicSettings(topic))).get("cleanup.policy") ?? "";
      if (policy !== "compact") throw misconfigured(topic, "cleanup.policy", policy, "compact");
      return [];
    }
    if (!existed) return [];
    const name = JSON.stringify(topic);
    return [
      `Topic ${name}: cleanup.policy was not checked, since librdkafka's binding can't read it; it must be compact`,
    ];
  }

  async #create(wanted: CoordinationTopic, brokers: number, deadline: Deadline): Promise<FoundTopic> {
    const replicationFactor = Math.max(1, Math.min(DEFAULT_REPLICATION, brokers));
    const topic = {
      topic: wanted.name,
      partitions: wanted.partitions,
      replicationFactor,
      settings: settingsFor(replicationFactor),
    };
    for (;;) {
      const leave = await nativeCalls.enter("patient", deadline);
      const refusal = await createTopic(this.#config.admin, topic, CREATE_MS)
        .then(() => undefined)
        .catch((error: NativeError) => error)
        .finally(leave);
      // Another member may have been faster; what it made is checked like any other topic.
      if (refusal === undefined || codeOf(refusal) === TOPIC_ALREADY_EXISTS) {
        return await this.#untilLed(wanted.name, deadline);
      }
      const error = errorOf(refusal, `Creating topic ${JSON.stringify(wanted.name)}`);
      if (error.code !== "UNREACHABLE") throw error;
      await deadline.pause(100);
    }
  }

  /** A topic takes a moment until the brokers know it with a leader for each partition. */
  async #untilLed(name: string, deadline: Deadline): Promise<FoundTopic> {
    for (;;) {
      const { topics } = await this.#consumer.metadata(name, deadline);
      const found = topics.find((topic) => topic.name === name);
      if (found !== undefined && found.partitions.length > 0 && found.partitions.every(({ leader }) => leader >= 0)) {
        return found;
      }
      await deadline.pause(20);
    }
  }
}

const misconfigured = (topic: string, setting: string, found: string | number, wanted: string | number): KrabkaError =>
  new KrabkaError(
    "TOPIC_MISCONFIGURED",
    `Topic ${JSON.stringify(topic)}: ${setting} is ${JSON.stringify(found)}; ${JSON.stringify(wanted)} is wanted`,
  );
