import type { ProducerPair } from "./fencing-token.js";
import type { Role } from "./names.js";
import type { CoordinationRecord, RawRecord } from "./record.js";

/** The part of the platform's `AbortSignal` that Krabka uses, spelled out so that core needs no platform types. */
export interface AbortSignalLike {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: "abort", listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** Bounds of one call. When either ends it, the call rejects with `TIMEOUT` or `ABORTED` unless it says otherwise. */
export interface CallOptions {
  readonly signal?: AbortSignalLike | undefined;
  /** @default the transport's request timeout */
  readonly timeoutMs?: number | undefined;
}

/** Whether a backend can do something, and if not, why. Asking for what it can't do rejects with `UNSUPPORTED`. */
export type Capability = { readonly supported: true } | { readonly supported: false; readonly reason: string };

export interface TransportCapabilities {
  /**
   * `WriterSession.append` and `retire`: one produce request under the role's own pair. May turn into unsupported while the
   * transport is used, when a broker refuses one as such.
   */
  readonly fencedAppend: Capability;
  /** `WriterSession.remint`: a new epoch that is refused if a rival took over in between. */
  readonly conditionalRemint: Capability;
  /** `Transport.describe`: the coordinator's current pair. */
  readonly describe: Capability;
  /** Feeds report records that are not committed yet, as signs of life. */
  readonly uncommittedReads: Capability;
  /** Header values may be any bytes. Without it a value that is not UTF-8 is refused before anything is sent. */
  readonly binaryHeaders: Capability;
}

/** The coordination topic as configured and found. */
export interface CoordinationTopic {
  readonly name: string;
  readonly partitions: number;
}

/** What `prepare` found. */
export interface Prepared {
  readonly topic: CoordinationTopic;
  /** What works but should be changed, as sentences (for instance replication factor 1). */
  readonly warnings: readonly string[];
}

/** Takes what a feed reads. Called in log order, one call at a time; must not throw. */
export interface FeedListener {
  /** Committed records of the role, decoded, in offset order within one call. */
  onRecords(records: readonly CoordinationRecord[]): void;
  /**
   * Records of the role inside a transaction that is still open. A sign of life for waiting; never part of the state. The
   * same records come again through `onRecords` if the transaction commits.
   */
  onUncommitted(records: readonly CoordinationRecord[]): void;
  /** The feed lost its place (a gap, or an older history): drop everything; a full replay follows. */
  onReset(): void;
  /** A record that does not decode, once per offset. It was skipped. */
  onMalformed(offset: bigint, error: Error): void;
  /** Reading fails at present and is being retried, or (with `UNAUTHORIZED`, `UNKNOWN_TOPIC`) ended for good. */
  onError(error: Error): void;
}

/** A running read of one role: replay from the start of the log, then the live tail. */
export interface RoleFeed {
  /**
   * Asks the log for its end *after* the call, and resolves once every record of the role that was committed before
   * that end has been given to the listener.
   *
   * Resolving proves that the listener's state is no older than the instant of the call. A transaction of another role
   * that is open in the same partition does not hold it up on backends with `uncommittedReads`.
   *
   * @returns the end, exclusive.
   * @throws {KrabkaError} `TIMEOUT`, `ABORTED`, `UNREACHABLE`, `UNAUTHORIZED`, `UNKNOWN_TOPIC`, `CLOSED`
   */
  sync(options?: CallOptions): Promise<bigint>;
  /** Ends the feed; no listener call follows. Idempotent. */
  close(): void;
}

/** Where an acknowledged record stands. */
export interface RecordPosition {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  /** The log's own clock, where the topic stamps records itself. */
  readonly appendedAtMs?: number | undefined;
}

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** A record to write. Without `partition` it goes where Kafka's default partitioner puts its key. */
export interface OutgoingRecord extends RawRecord {
  readonly topic: string;
  readonly partition?: number | undefined;
  /** @default the transport's wall clock */
  readonly timestampMs?: number | undefined;
}

/**
 * The truth about a write. There is no "failed": what may be visible is `unknown`.
 *
 * - `committed`: durable; one position for each record, in order.
 * - `fenced`: nothing of it is or will be visible, and the pair is dead: a newer one exists, or the broker ended it.
 * - `aborted`: nothing of it is or will be visible; the session goes on.
 * - `unknown`: it may or may not become visible. The session takes no further write before `remint`.
 */
export type WriteOutcome =
  | { readonly status: "committed"; readonly positions: readonly RecordPosition[] }
  | { readonly status: "fenced"; readonly cause: Error }
  | { readonly status: "aborted"; readonly cause: Error }
  | { readonly status: "unknown"; readonly cause: Error };

/**
 * A writer under one minted pair. It has the authority of that pair and nothing else: the broker refuses it as soon as
 * somebody else minted (transactions) or wrote to the partition (appends).
 *
 * Writes are executed in the order of the calls, one at a time. The session owns the sequence numbers of its pair.
 */
export interface WriterSession {
  readonly role: Role;
  /** The pair the broker gave this very session; a new one after `remint`. */
  readonly pair: ProducerPair;
  /**
   * True after a write whose answer was lost on the way, also if it was settled since: a late request of the old epoch
   * might still land on the next transaction. While true, `commit` and `append` reject with `UNKNOWN_OUTCOME`; `remint`
   * makes it false. Where `remint` is unsupported such a session is at its end.
   */
  readonly mustRemint: boolean;

  /**
   * Writes all records in one transaction. A lost answer is settled inside the call as long as its time limit allows.
   *
   * Never rejects for what the broker said: that is in the outcome. A call that was aborted or timed out before anything
   * was sent is `aborted`; after that it is `unknown`.
   *
   * @throws {KrabkaError} `INVALID_ARGUMENT`, `UNKNOWN_TOPIC` or `UNAUTHORIZED` (the records' topics) before anything was
   * written; `UNKNOWN_OUTCOME` when an earlier write is not settled; `CLOSED`.
   */
  commit(records: readonly OutgoingRecord[], options?: CallOptions): Promise<WriteOutcome>;

  /**
   * Appends all records to one partition in one idempotent, non-transactional batch. Needs `fencedAppend`. A lost answer is settled by
   * repeating the request with the same sequence number.
   *
   * @throws as `commit`, and `UNSUPPORTED`; the latter also when the broker refuses appends as such. Nothing was written then,
   * and `commit` may follow under the same pair.
   */
  append(target: TopicPartition, records: readonly RawRecord[], options?: CallOptions): Promise<WriteOutcome>;

  /**
   * Shuts a producer id that the role used before out of one partition for good, by appending `record` under that id's
   * last epoch (32767). Needs `fencedAppend`. Only for an id that the role has left: the partition checks epochs per
   * id, so without this a leader under the old id could append after the new one's grant.
   *
   * @throws as `append`
   */
  retire(producerId: bigint, target: TopicPartition, record: RawRecord, options?: CallOptions): Promise<WriteOutcome>;

  /**
   * Settles an unknown write, as far as that can be learned, and takes a new epoch of this session's *own* pair. The
   * coordinator refuses it if anybody took over in between. Needs `conditionalRemint`. Also allowed with nothing to settle.
   *
   * A late request of the old epoch can do no harm after it. On success `pair` is the new one.
   *
   * @returns what became of the unknown write: `committed`, `aborted`, `unknown` if that can't be learned any more, or
   * undefined if there was none.
   * @throws {FencedError} Somebody took over, or the coordinator no longer knows the pair; the session is dead.
   * @throws {KrabkaError} `UNREACHABLE`, `TIMEOUT`, `BUSY` (retry), `UNSUPPORTED`, `CLOSED`.
   */
  remint(options?: CallOptions): Promise<WriteOutcome | undefined>;

  /** Ends the session on this side; an open transaction is aborted where possible. Idempotent; never rejects. */
  close(): Promise<void>;
}

export interface SessionOptions extends CallOptions {
  /** After this long the broker aborts a transaction by itself and ends the pair. */
  readonly transactionTimeoutMs: number;
  /**
   * Asked synchronously right before the mint goes out (or as late as the backend can), since finding the coordinator may
   * take long and the process may have been paused: is the state that the mint rests on still fresh, and does it still
   * say so? If false, nothing is sent and the call rejects with `BUSY`.
   */
  readonly mayMint: () => boolean;
}

/** The coordinator's answer about a role. */
export interface RoleDescription {
  /** The current pair, or undefined when the coordinator does not know the role (never minted, or expired). */
  readonly pair: ProducerPair | undefined;
  /** The backend's own word for the state of the role's transaction, for people. */
  readonly transactionState: string;
}

export interface DescribeOptions extends CallOptions {
  /**
   * Rejects with `UNAUTHORIZED` also where this client may not mint for the role, as far as the backend can tell without
   * minting; elsewhere that is learned from the mint. @default false
   */
  readonly requireWrite?: boolean | undefined;
}

/** One backend. Shared by any number of roles and members in the process. */
export interface Transport {
  /** For messages and metrics, such as "kafkajs". */
  readonly name: string;
  readonly capabilities: TransportCapabilities;

  /**
   * Connects, checks the broker's version, and creates or checks the coordination topic. Runs once; later calls share it
   * until it failed. `capabilities` is settled when it resolves, but for `fencedAppend`.
   *
   * @throws {KrabkaError} `UNREACHABLE`, `UNAUTHORIZED`, `UNSUPPORTED`, `TOPIC_MISCONFIGURED`, `TIMEOUT`, `ABORTED`
   */
  prepare(options?: CallOptions): Promise<Prepared>;

  /** Starts to read a role. Needs no authority beyond reading the topic. Errors go to the listener and to `sync`. */
  follow(role: Role, listener: FeedListener): RoleFeed;

  /**
   * Appends registrations and their tombstones with the rights of an ordinary producer: no epoch, no transaction. It may
   * have been written although the call rejected with `UNREACHABLE`, `TIMEOUT` or `ABORTED`.
   */
  appendUnfenced(
    target: TopicPartition,
    records: readonly RawRecord[],
    options?: CallOptions,
  ): Promise<readonly RecordPosition[]>;

  /**
   * Mints: an unconditional `InitProducerId` for the role, sent at most once. From its success on every older pair is
   * refused by the coordinator. Call it only when a state that was read just before says so.
   *
   * @throws {KrabkaError} `BUSY` while the coordinator ends an earlier transaction (read the role again, then retry);
   * `UNAUTHORIZED`, `INVALID_ARGUMENT` (the broker's limit for the timeout), `UNREACHABLE`, `TIMEOUT`, `ABORTED`; after the last three the
   * mint may have happened.
   */
  openSession(role: Role, options: SessionOptions): Promise<WriterSession>;

  /** Asks the coordinator for the role's current pair. Needs `describe`, and no authority over the role unless wanted. */
  describe(role: Role, options?: DescribeOptions): Promise<RoleDescription>;

  /** Number of partitions of a topic. @throws {KrabkaError} `UNKNOWN_TOPIC`, `UNAUTHORIZED`, `UNREACHABLE` */
  partitionsOf(topic: string, options?: CallOptions): Promise<number>;

  /** Ends everything that was opened here and lets the process exit. Idempotent; never rejects. */
  close(): Promise<void>;
}

/** A record as a consumer sees it, for tools and tests. */
export interface ReadRecord extends RawRecord {
  readonly offset: bigint;
}
