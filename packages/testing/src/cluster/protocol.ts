import type { RawRecord } from "@krabka/core";

/** Error codes of Kafka's protocol, as in `org.apache.kafka.common.protocol.Errors`. */
export const KafkaCode = {
  OFFSET_OUT_OF_RANGE: 1,
  UNKNOWN_TOPIC_OR_PARTITION: 3,
  NOT_LEADER_OR_FOLLOWER: 6,
  MESSAGE_TOO_LARGE: 10,
  COORDINATOR_LOAD_IN_PROGRESS: 14,
  COORDINATOR_NOT_AVAILABLE: 15,
  NOT_COORDINATOR: 16,
  TOPIC_AUTHORIZATION_FAILED: 29,
  TOPIC_ALREADY_EXISTS: 36,
  UNSUPPORTED_FOR_MESSAGE_FORMAT: 43,
  OUT_OF_ORDER_SEQUENCE_NUMBER: 45,
  INVALID_PRODUCER_EPOCH: 47,
  INVALID_TXN_STATE: 48,
  INVALID_PRODUCER_ID_MAPPING: 49,
  INVALID_TRANSACTION_TIMEOUT: 50,
  CONCURRENT_TRANSACTIONS: 51,
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 53,
  UNKNOWN_PRODUCER_ID: 59,
  INVALID_RECORD: 87,
  PRODUCER_FENCED: 90,
  TRANSACTIONAL_ID_NOT_FOUND: 105,
} as const;

export const NO_PRODUCER_ID = -1n;
export const NO_EPOCH = -1;
export const NO_SEQUENCE = -1;

export interface StoredRecord extends RawRecord {
  readonly offset: bigint;
  readonly timestampMs: number;
}

/** What one produce request put into a partition, or a control marker (`records` is empty then). */
export interface StoredBatch {
  readonly baseOffset: bigint;
  /** The next offset to read follows it, whatever survives in `records`. */
  readonly lastOffset: bigint;
  readonly records: readonly StoredRecord[];
  readonly producerId: bigint;
  readonly epoch: number;
  readonly baseSequence: number;
  readonly transactional: boolean;
  readonly control: "commit" | "abort" | undefined;
  /** Set where the topic stamps records itself. */
  readonly appendedAtMs: number | undefined;
}

export interface ProduceBatch {
  readonly records: readonly (RawRecord & { readonly timestampMs: number })[];
  /** -1 for a producer without idempotence. */
  readonly producerId: bigint;
  readonly epoch: number;
  readonly baseSequence: number;
  readonly transactional: boolean;
}

export interface PartitionRef {
  readonly topic: string;
  readonly partition: number;
}

/** One transaction of which a reader must drop the records, up to the marker at `markerOffset`. */
export interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: bigint;
  readonly markerOffset: bigint;
}

export type Isolation = "read_committed" | "read_uncommitted";

/** The requests that the fake brokers serve: what is asked, and what an answer without error holds. */
export interface Apis {
  Metadata: { ask: { readonly topic: string }; answer: { readonly leaders: readonly number[] } };
  CreateTopics: { ask: { readonly topic: string; readonly settings: TopicSettings }; answer: object };
  DescribeConfigs: { ask: { readonly topic: string }; answer: { readonly settings: FullTopicSettings } };
  FindCoordinator: { ask: { readonly transactionalId: string }; answer: { readonly broker: number } };
  InitProducerId: {
    ask: {
      readonly transactionalId: string;
      readonly transactionTimeoutMs: number;
      /** Version 3+: the caller's own pair; the request is refused if somebody took over since. */
      readonly expected?: { readonly producerId: bigint; readonly epoch: number } | undefined;
    };
    answer: { readonly producerId: bigint; readonly epoch: number };
  };
  AddPartitionsToTxn: { ask: TransactionAsk & { readonly partitions: readonly PartitionRef[] }; answer: object };
  EndTxn: { ask: TransactionAsk & { readonly commit: boolean }; answer: object };
  DescribeTransactions: {
    ask: { readonly transactionalId: string };
    answer: { readonly producerId: bigint; readonly epoch: number; readonly state: TransactionState };
  };
  Produce: {
    ask: PartitionRef & { readonly transactionalId: string | undefined; readonly batch: ProduceBatch };
    answer: { readonly baseOffset: bigint; readonly appendedAtMs: number | undefined };
  };
  Fetch: {
    ask: PartitionRef & { readonly offset: bigint; readonly isolation: Isolation; readonly maxWaitMs: number };
    answer: {
      readonly batches: readonly StoredBatch[];
      readonly highWatermark: bigint;
      readonly lastStableOffset: bigint;
      readonly logStartOffset: bigint;
      readonly aborted: readonly AbortedTransaction[];
    };
  };
  ListOffsets: {
    ask: PartitionRef & { readonly at: "earliest" | "latest"; readonly isolation: Isolation };
    answer: { readonly offset: bigint };
  };
  /** From the coordinator to the leader of a partition. */
  WriteTxnMarkers: {
    ask: PartitionRef & {
      readonly transactionalId: string;
      readonly producerId: bigint;
      readonly epoch: number;
      readonly commit: boolean;
    };
    answer: object;
  };
}

export interface TransactionAsk {
  readonly transactionalId: string;
  readonly producerId: bigint;
  readonly epoch: number;
}

export type TransactionState =
  | "Empty"
  | "Ongoing"
  | "PrepareCommit"
  | "PrepareAbort"
  | "CompleteCommit"
  | "CompleteAbort";

export interface TopicSettings {
  readonly partitions: number;
  readonly replicationFactor?: number | undefined;
  readonly cleanupPolicy?: string | undefined;
  readonly timestampType?: "CreateTime" | "LogAppendTime" | undefined;
  /** How long a tombstone survives compaction. */
  readonly deleteRetentionMs?: number | undefined;
}

export type FullTopicSettings = { readonly [K in keyof TopicSettings]-?: NonNullable<TopicSettings[K]> };

export type ApiName = keyof Apis;
export type Ask<A extends ApiName> = Apis[A]["ask"];
export type Refusal = { readonly ok: false; readonly code: number };
export type Answer<A extends ApiName> = ({ readonly ok: true } & Apis[A]["answer"]) | Refusal;

export const refuse = (code: number): Refusal => ({ ok: false, code });

/** The connection broke: whether the request was executed is not known. */
export class ConnectionLostError extends Error {
  constructor(what: string) {
    super(what);
    this.name = "ConnectionLostError";
  }
}
