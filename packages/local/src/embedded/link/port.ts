import type { ProducerPair, TopicPartition } from "@krabka/core";
import type { Sighting } from "../broker/openings.js";
import type { Slice } from "../broker/partition-log.js";
import type { BrokerAnswer } from "../broker/request.js";

/** What changes nothing and may be asked again. */
export type BrokerQuery =
  | { readonly kind: "describe"; readonly role: string }
  | { readonly kind: "topic"; readonly topic: string }
  | {
      readonly kind: "fetch";
      readonly target: TopicPartition;
      readonly from: bigint | "earliest" | "latest";
      /** Answers only when there is a record, or a gap. */
      readonly waits: boolean;
    };

export type QueryResult =
  | { readonly kind: "pair"; readonly pair: ProducerPair | undefined }
  | { readonly kind: "topic"; readonly partitions: number }
  | { readonly kind: "slice"; readonly slice: Slice; readonly end: bigint }
  | { readonly kind: "gap"; readonly start: bigint; readonly end: bigint }
  | { readonly kind: "end"; readonly end: bigint }
  | { readonly kind: "unknown-topic"; readonly message: string };

/** What a feed reads: all of one role in its partition. */
export interface FeedSpec extends TopicPartition {
  readonly role: string;
}

/**
 * One client's way to a broker, in this process or over a socket. Calls return at once; what they bring comes through the
 * `PortListener`, in the order in which the broker said it.
 */
export interface BrokerPort {
  /** @param acked Answers up to this id have arrived. */
  request(sequence: bigint, acked: bigint, request: Uint8Array): void;
  query(id: number, query: BrokerQuery): void;
  cancel(id: number): void;
  /** Pushes records of a feed from an offset on, until `unfollow`. */
  follow(feed: number, spec: FeedSpec, from: bigint): void;
  /** Answers `end` as query `id` once the feed was given everything before the end as it is now. */
  sync(id: number, feed: number): void;
  unfollow(feed: number): void;
  close(): void;
}

export interface PortListener {
  /** More should not be pushed for now; `BrokerPort` users call `resume` when it changes. */
  readonly congested: boolean;
  /** What follows rests on the records before this position of the log, and on none after it. */
  onDurable(position: bigint): void;
  onAnswer(sequence: bigint, answer: BrokerAnswer): void;
  onResult(id: number, result: QueryResult): void;
  /** @param reset The feed lost its place: this is the start of a full replay. */
  onRecords(feed: number, reset: boolean, slice: Slice): void;
  /** The feed reads a topic that does not exist. */
  onFeedEnded(feed: number, message: string): void;
  /** The way is gone, whatever was under way. Nothing follows. */
  onLost(error: Error): void;
}

/** A way that was opened. */
export interface OpenPort {
  readonly port: BrokerPort;
  /** Whether the broker remembers the client's earlier requests. */
  readonly isKnown: boolean;
  /** The log as it is now. */
  readonly sighting: Sighting;
  readonly maxRequestBytes: number;
}

/** Opens ways to a broker, one after the other as they get lost. */
export interface Connector {
  /** For messages: what is connected to. */
  readonly where: string;
  /**
   * @param seen What the client saw over earlier ways.
   * @throws {KrabkaError} `UNREACHABLE` when it is worth trying again; `CLOSED` when there will never be a way again, as when
   * this is not the log that the client knows; anything else is for people to put right, though it is tried again, too
   */
  connect(client: string, seen: Sighting | undefined, listener: PortListener): Promise<OpenPort>;
  /** Idempotent; never rejects. */
  close(): Promise<void>;
}
