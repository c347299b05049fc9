import type { ProducerPair, TopicPartition } from "@krabka/core";

/** Records for one partition, each encoded. */
export interface RecordBatch extends TopicPartition {
  readonly records: readonly Uint8Array[];
}

/** What changes the broker's state. One request is one record of the log, so it takes effect whole or not at all. */
export type BrokerRequest =
  /** The owner's own: a new opening of the log begins with this record. */
  | {
      readonly kind: "open";
      readonly name: string;
      readonly position: bigint;
      /** How far all offsets and producer ids jump. */
      readonly raiseBy: bigint;
    }
  /** The owner's own: so many roles that were silent for longest are forgotten. */
  | { readonly kind: "forget-roles"; readonly count: number }
  /** Makes the client known, so that its request ids are remembered. */
  | { readonly kind: "register-client" }
  | { readonly kind: "create-topic"; readonly topic: string; readonly partitions: number; readonly compacted: boolean }
  | { readonly kind: "mint"; readonly role: string }
  | {
      readonly kind: "remint";
      readonly role: string;
      /** The caller's own. */
      readonly pair: ProducerPair;
      /** Id of the caller's request whose fate is wanted. */
      readonly unsettled: bigint | undefined;
    }
  | {
      readonly kind: "commit";
      readonly role: string;
      readonly pair: ProducerPair;
      readonly batches: readonly RecordBatch[];
    }
  | {
      readonly kind: "append";
      readonly role: string;
      readonly pair: ProducerPair;
      readonly sequence: number;
      readonly batch: RecordBatch;
    }
  | {
      readonly kind: "retire";
      readonly role: string;
      readonly pair: ProducerPair;
      readonly producerId: bigint;
      readonly batch: RecordBatch;
    }
  | { readonly kind: "append-unfenced"; readonly batch: RecordBatch }
  | { readonly kind: "delete-records"; readonly target: TopicPartition };

/**
 * Who asks, and under which id: it is executed at most once, however often it arrives. Answers up to `acked` have arrived
 * and are forgotten.
 */
export interface Origin {
  /** Random, chosen by the client. */
  readonly client: string;
  readonly sequence: bigint;
  readonly acked: bigint;
}

export type Refusal =
  /** A newer pair of the role exists, or the partition has shut the id out. */
  | "fenced"
  | "unknown-topic"
  /** The topic exists with other settings. */
  | "topic-differs"
  | "invalid"
  | "unknown-client"
  /** The client said before that it no longer waits for this request. */
  | "outdated";

/** One base offset for each batch, in order. */
export interface Written {
  readonly status: "written";
  readonly atMs: number;
  readonly bases: readonly bigint[];
}

export type BrokerAnswer =
  | { readonly status: "done" }
  | {
      readonly status: "minted";
      readonly pair: ProducerPair;
      /** What became of the request that was asked about: its answer, or null when it will never take effect. */
      readonly settled: Written | null;
    }
  | Written
  | { readonly status: "refused"; readonly reason: Refusal; readonly message: string };

/** A request with its instant, as the log keeps it. */
export interface Command {
  /** The owner's wall clock. */
  readonly atMs: number;
  readonly origin: Origin | undefined;
  readonly request: BrokerRequest;
}

export const refuse = (reason: Refusal, message: string): BrokerAnswer => ({ status: "refused", reason, message });
