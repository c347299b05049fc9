import type { LoggedCommand } from "../term-order.js";

/** What a candidate is told about where it takes part. */
export interface Entry {
  readonly transport: TransportName;
  /** Brokers for Kafka, the path of the owner's socket for the embedded transport. */
  readonly address: string;
}

export type TransportName = "embedded" | "kafkajs" | "rdkafka";

/** The log behind a run: it outlives every candidate. */
export interface Backend extends AsyncDisposable {
  readonly topic: string;
  /** Where candidate number `index` takes part. */
  entryOf(index: number): Entry;
  /** All commands that are committed. */
  readLog(): Promise<readonly LoggedCommand[]>;
}

export const COMMAND_PARTITIONS = 3;
