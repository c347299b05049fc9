import type { CoordinationTopic } from "@krabka/core";
import type { HarnessTransportOptions } from "@krabka/testing/conformance";
import { type StartKafkaOptions, startKafka } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import { KafkaHarness } from "../../transport-kafkajs/kafka-test/kafka-harness.js";
import { RdKafkaTransport } from "../src/index.js";

/** Makes transports of this package, each with a describer. */
export class RdKafkaHarness extends KafkaHarness {
  readonly #describers = new Map<string, KafkaJsTransport>();

  override transport(options: HarnessTransportOptions): RdKafkaTransport {
    const { name: topic, partitions } = options.topic;
    const describer = this.describer(options.topic);
    return new RdKafkaTransport({ brokers: this.bootstrapFor(options), topic, partitions, describer });
  }

  /** Of one topic; ends with the harness. */
  describer({ name: topic, partitions }: CoordinationTopic): KafkaJsTransport {
    const key = `${partitions} ${topic}`;
    const kafka = { brokers: this.cluster.bootstrap.split(","), clientId: "describer", logLevel: logLevel.NOTHING };
    const describer = this.#describers.get(key) ?? new KafkaJsTransport({ kafka, topic, partitions });
    this.#describers.set(key, describer);
    return describer;
  }

  override async close(): Promise<void> {
    await Promise.all([...this.#describers.values()].map((describer) => describer.close()));
    await super.close();
  }
}

export const startHarness = async (cluster: StartKafkaOptions = { proxied: true }): Promise<RdKafkaHarness> =>
  new RdKafkaHarness(await startKafka(cluster));
