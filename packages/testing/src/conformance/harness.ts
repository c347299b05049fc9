import type {
  Clock,
  CoordinationTopic,
  OutgoingRecord,
  ProducerPair,
  RawRecord,
  ReadRecord,
  Role,
  TopicPartition,
  Transport,
  TransportCapabilities,
} from "@krabka/core";

/**
 * What a harness may be unable to do with its backend. Tests that need a missing power are skipped, with the reason in
 * their title.
 */
export type HarnessPower =
  /** `injectFault` with `lose-answer`. */
  | "loseAnswers"
  /** `injectFault` with `hold-request`. */
  | "holdRequests"
  | "cutConnections"
  | "startTransaction"
  | "deleteRecords"
  | "moveLeader"
  | "moveCoordinator"
  | "forgetRole"
  /** An older pair's append is still accepted until the newer pair's first record is in the partition, as on Kafka. */
  | "lateFence";

export interface HarnessTransportOptions {
  readonly topic: CoordinationTopic;
  /** Whether faults reach this transport; all others are spared. */
  readonly faulty: boolean;
}

/** A fault between the faulty transports and the backend. */
export interface WireFault {
  readonly api: "InitProducerId" | "AddPartitionsToTxn" | "Produce" | "EndTxn";
  /**
   * - `lose-answer`: the request is executed, then the connection breaks before the answer.
   * - `hold-request`: the request arrives only after `release`, also if its sender no longer waits.
   */
  readonly effect: "lose-answer" | "hold-request";
}

export interface WireFaultHandle {
  /** Resolves when a request was hit. */
  readonly hit: Promise<void>;
  /** Lets the held request go. */
  release(): Promise<void>;
}

/** A transaction that some other program has open. */
export interface OpenTransaction {
  end(result: "commit" | "abort"): Promise<void>;
}

/**
 * The backend as seen by somebody who does not use the transport under test: what the tests compare the transport's word
 * with. A method whose power is declared as missing is never called.
 */
export interface TransportHarness {
  /** What the tests wait by: real time for a real backend. */
  readonly clock: Clock;
  /** Longest wait for something that must happen. */
  readonly patienceMs: number;
  /** A fresh transport, not prepared. The test closes it. */
  transport(options: HarnessTransportOptions): Transport;
  /** Creates a topic for the caller's own records, deleted by age as topics are by default. */
  createTopic(name: string, partitions: number): Promise<void>;
  /** Everything a new committed reader gets to see in this partition now. */
  readCommitted(target: TopicPartition): Promise<readonly ReadRecord[]>;
  /** Appends as an ordinary producer. @returns the first record's offset */
  appendRaw(target: TopicPartition, records: readonly RawRecord[]): Promise<bigint>;
  /** The coordinator's current pair of a role, asked past the transport. */
  describeRole(role: Role): Promise<ProducerPair | undefined>;
  /** Hits the next request of this kind from a faulty transport. */
  injectFault(fault: WireFault): Promise<WireFaultHandle>;
  /** Breaks all connections of the faulty transports; new ones work. */
  cutConnections(): Promise<void>;
  /** Mints for a transactional id, writes the records under it and leaves the transaction open. */
  startTransaction(transactionalId: string, records: readonly OutgoingRecord[]): Promise<OpenTransaction>;
  /** Deletes all records of a partition. @returns its begin, which equals its end */
  deleteRecords(target: TopicPartition): Promise<bigint>;
  /** Gives the partition to another broker. */
  moveLeader(target: TopicPartition): Promise<void>;
  /** Gives the role to another transaction coordinator. */
  moveCoordinator(role: Role): Promise<void>;
  /** Makes the coordinator forget a role that has no transaction open, as its expiry would. */
  forgetRole(role: Role): Promise<void>;
  close(): Promise<void>;
}

/** One transport with its backend, as `describeTransport` takes it. */
export interface TransportSubject {
  /** Such as "kafkajs on Kafka 4.1". */
  readonly name: string;
  /** What the harness can't do, each with its reason. */
  readonly missing: { readonly [P in HarnessPower]?: string };
  /** What the transport must declare as unsupported, each with the reason that the skipped tests show. */
  readonly unsupported: { readonly [C in keyof TransportCapabilities]?: string };
  /** Called once, before the first test. */
  start(): Promise<TransportHarness>;
}
