import {
  type CoordinationTopic,
  coordinationTopicSettings,
  type Deadline,
  KrabkaError,
  type Prepared,
} from "@krabka/core";
import { nativeCalls } from "./call-gate.js";
import { UNSUPPORTED_REASONS } from "./capabilities.js";
import type { ClientConfig } from "./client-config.js";
import type { Describer } from "./describer.js";
import { createTopic, type NativeError, type NativeMetadata } from "./native-binding.js";
import { codeOf, errorOf, TOPIC_ALREADY_EXISTS } from "./native-errors.js";
import type { SteadyConsumer } from "./steady-consumer.js";

type FoundTopic = NativeMetadata["topics"][number];

const DEFAULT_REPLICATION = 3;
const CREATE_MS = 2_000;

/** Creates the coordination topic where it is absent, then checks what can be seen of it. */
export class TopicSetup {
  readonly #config: ClientConfig;
  readonly #consumer: SteadyConsumer;
  readonly #describer: Describer | undefined;
  #creating: Promise<unknown> | undefined;
  #closed = false;

  constructor(config: ClientConfig, consumer: SteadyConsumer, describer: Describer | undefined) {
    this.#config = config;
    this.#consumer = consumer;
    this.#describer = describer;
  }

  /** @throws {KrabkaError} as `Transport.prepare` */
  prepare(wanted: CoordinationTopic, deadline: Deadline): Promise<Prepared> {
    return this.#describer === undefined
      ? this.#prepareAlone(wanted, deadline)
      : this.#prepareWith(this.#describer, wanted, deadline);
  }

  /** Lets nothing be created any more, and waits for what is being created. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#creating;
  }

  /** All that librdkafka can do: it counts partitions and replicas, and can't ask for a topic's settings. */
  async #prepareAlone(wanted: CoordinationTopic, deadline: Deadline): Promise<Prepared> {
    const { topics, brokers } = await this.#consumer.metadata(wanted.name, deadline);
    const existing = topics.find(({ name, partitions }) => name === wanted.name && partitions.length > 0);
    const created = existing === undefined && (await this.#create(wanted, brokers.length, deadline));
    const found = existing ?? (await this.#untilLed(wanted.name, deadline));
    checkPartitions(found, wanted);
    const name = JSON.stringify(wanted.name);
    const warnings: string[] = [];
    if (!created) {
      const reason = UNSUPPORTED_REASONS.topicSettings;
      warnings.push(`Topic ${name}: cleanup.policy must be compact, which was not checked: ${reason}`);
    }
    const replicas = Math.min(...found.partitions.map((partition) => partition.replicas.length));
    if (replicas === 1) {
      warnings.push(`Topic ${name} has replication factor 1: the loss of one broker loses the roles; 3 is advised`);
    }
    return { topic: { name: wanted.name, partitions: wanted.partitions }, warnings };
  }

  /** The describer creates and checks the topic; then librdkafka must come to see the same one. */
  async #prepareWith(describer: Describer, wanted: CoordinationTopic, deadline: Deadline): Promise<Prepared> {
    const prepared = await deadline.race(describer.prepare({ timeoutMs: Math.max(1, deadline.remainingMs) }));
    const { name, partitions } = prepared.topic;
    if (name !== wanted.name || partitions !== wanted.partitions) {
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `The describer is for ${partitions} partitions of topic ${JSON.stringify(name)}; ` +
          `the transport is for ${wanted.partitions} of ${JSON.stringify(wanted.name)}`,
      );
    }
    checkPartitions(await this.#untilLed(name, deadline), wanted);
    return prepared;
  }

  /** @returns false when somebody else was faster */
  async #create(wanted: CoordinationTopic, brokers: number, deadline: Deadline): Promise<boolean> {
    const replicationFactor = Math.max(1, Math.min(DEFAULT_REPLICATION, brokers));
    const topic = {
      topic: wanted.name,
      partitions: wanted.partitions,
      replicationFactor,
      settings: coordinationTopicSettings(replicationFactor),
    };
    for (;;) {
      const leave = await nativeCalls.enter("patient", deadline);
      if (this.#closed) {
        leave();
        throw new KrabkaError("CLOSED", "The transport was closed");
      }
      const creating = createTopic(this.#config.admin, topic, CREATE_MS)
        .then(() => undefined)
        .catch((error: NativeError) => error)
        .finally(leave);
      this.#creating = creating;
      const refusal = await creating;
      if (refusal === undefined) return true;
      if (codeOf(refusal) === TOPIC_ALREADY_EXISTS) return false;
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

const checkPartitions = ({ partitions }: FoundTopic, wanted: CoordinationTopic): void => {
  if (partitions.length === wanted.partitions) return;
  throw new KrabkaError(
    "TOPIC_MISCONFIGURED",
    `Topic ${JSON.stringify(wanted.name)}: partition count is ${partitions.length}; ${wanted.partitions} is wanted`,
  );
};
