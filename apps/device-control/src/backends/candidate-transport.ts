import type { Clock, Transport } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import type { Entry } from "./backend.js";

/** A deployment picks its transport; nothing else in a candidate changes. */
export async function openTransport(entry: Entry, clientId: string, clock: Clock): Promise<Transport> {
  const { transport, address } = entry;
  switch (transport) {
    case "embedded":
      return EmbeddedTransport.connect({ socketPath: address, clock });
    case "kafkajs": {
      const kafka = { clientId, brokers: address.split(","), logLevel: logLevel.NOTHING };
      return new KafkaJsTransport({ kafka, clock });
    }
    case "rdkafka":
      return openRdKafka(address, clock);
  }
}

interface RdKafkaModule {
  readonly RdKafkaTransport: new (options: { brokers: string; clock: Clock }) => Transport;
}

/** By its place in the repository and not as a dependency: whoever does not ask for it never builds it. */
async function openRdKafka(brokers: string, clock: Clock): Promise<Transport> {
  const place = new URL("../../../../packages/transport-rdkafka/dist/index.js", import.meta.url);
  const { RdKafkaTransport } = (await import(place.href)) as RdKafkaModule;
  return new RdKafkaTransport({ brokers, clock });
}
