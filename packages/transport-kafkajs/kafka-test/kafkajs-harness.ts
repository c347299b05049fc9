import type { HarnessTransportOptions } from "@krabka/testing/conformance";
import { type KafkaCluster, type StartKafkaOptions, startKafka } from "@krabka/tooling-kafka";
import { logLevel } from "kafkajs";
import { KafkaJsTransport, type LeaseRecords } from "../src/index.js";
import { KafkaHarness } from "./kafka-harness.js";

/** Makes transports of this package, each of which writes lease records in the same way. */
class KafkaJsHarness extends KafkaHarness {
  readonly #leaseRecords: LeaseRecords;

  constructor(cluster: KafkaCluster, leaseRecords: LeaseRecords) {
    super(cluster);
    this.#leaseRecords = leaseRecords;
  }

  override transport(options: HarnessTransportOptions): KafkaJsTransport {
    const { name: topic, partitions } = options.topic;
    const brokers = this.bootstrapFor(options).split(",");
    const kafka = { brokers, clientId: "conformance", logLevel: logLevel.NOTHING };
    return new KafkaJsTransport({ kafka, topic, partitions, leaseRecords: this.#leaseRecords });
  }
}

export const startHarness = async (
  leaseRecords: LeaseRecords,
  cluster: StartKafkaOptions = { proxied: true },
): Promise<KafkaJsHarness> => new KafkaJsHarness(await startKafka(cluster), leaseRecords);
