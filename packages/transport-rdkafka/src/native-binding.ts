import { createRequire } from "node:module";
import { KrabkaError } from "@krabka/core";
import rdkafka from "node-rdkafka";

// All that lies below node-rdkafka's documented API is in this file. Its own connect() holds a thread of libuv's pool for
// up to 30 s while no broker answers and keeps a client for ever whose connect() failed; its disconnect() never calls back
// when called twice; and it leaves the error code and the flags of a delivery report out.

/** What librdkafka says about an error. The flags are on errors of the transactional calls. */
export interface NativeError {
  readonly message: string;
  readonly code?: number;
  readonly isFatal?: boolean;
  readonly isRetriable?: boolean;
  readonly isTxnRequiresAbort?: boolean;
}

export type Callback<T> = (error: NativeError | null | undefined, value: T) => void;

interface NativeReport {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly opaque: number;
}

export interface NativeCallbacks {
  readonly global: Record<string, never>;
  readonly topic: Record<string, never>;
  readonly event: {
    readonly event_cb?: (kind: string, event: { readonly message: string; readonly fac?: string }) => void;
    readonly delivery_cb?: (error: Error | null, report: NativeReport) => void;
  };
}

export interface NativeMetadata {
  readonly brokers: readonly { readonly id: number }[];
  readonly topics: readonly {
    readonly name: string;
    readonly partitions: readonly {
      readonly id: number;
      readonly leader: number;
      readonly replicas: readonly number[];
    }[];
  }[];
}

export interface NativeWatermarks {
  readonly lowOffset: number;
  readonly highOffset: number;
}

type NativeHeader = Readonly<Record<string, Uint8Array>>;

export interface NativeMessage {
  readonly partition: number;
  readonly offset: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers?: readonly NativeHeader[];
}

export interface NativeEof {
  readonly partition: number;
  readonly offset: number;
}

interface NativeClient {
  configureCallbacks(add: boolean, callbacks: NativeCallbacks): void;
  connect(done: Callback<unknown>): void;
  disconnect(done: Callback<unknown>): void;
  getMetadata(
    options: { readonly topic?: string; readonly allTopics: false; readonly timeout: number },
    done: Callback<NativeMetadata>,
  ): void;
  queryWatermarkOffsets(topic: string, partition: number, timeoutMs: number, done: Callback<NativeWatermarks>): void;
}

export interface NativeProducer extends NativeClient {
  poll(): void;
  /** @returns 0 or the code of the error */
  produce(
    topic: string,
    partition: number,
    value: Uint8Array | null,
    key: Uint8Array | null,
    timestampMs: number,
    opaque: number,
    headers: readonly Readonly<Record<string, string>>[],
  ): number;
  initTransactions(timeoutMs: number, done: Callback<unknown>): void;
  beginTransaction(done: Callback<unknown>): void;
  commitTransaction(timeoutMs: number, done: Callback<unknown>): void;
  abortTransaction(timeoutMs: number, done: Callback<unknown>): void;
}

interface NativePartition {
  readonly topic: string;
  readonly partition: number;
  readonly offset?: number;
}

/** Where a group stands in a partition, or why that is not told. */
export type NativePosition = NativePartition | Error;

export interface NativeConsumer extends NativeClient {
  committed(partitions: readonly NativePartition[], timeoutMs: number, done: Callback<readonly NativePosition[]>): void;
  incrementalAssign(partitions: readonly NativePartition[]): void;
  incrementalUnassign(partitions: readonly NativePartition[]): void;
  /** Runs on a thread of its own, not on libuv's pool. `disconnect` blocks the caller for up to `timeoutMs`. */
  consumeLoop(
    timeoutMs: number,
    pauseMs: 0,
    each: (
      error: Error | null,
      message: NativeMessage | null,
      eof: NativeEof | null,
      warningCode: number | null,
    ) => void,
  ): void;
}

/** A configuration of librdkafka: names and values of its CONFIGURATION.md. */
export type RdKafkaConfig = Readonly<Record<string, string | number | boolean>>;

const CLIENT = ["configureCallbacks", "connect", "disconnect", "getMetadata", "queryWatermarkOffsets"];
const PRODUCER = [
  ...CLIENT,
  "poll",
  "produce",
  "initTransactions",
  "beginTransaction",
  "commitTransaction",
  "abortTransaction",
];
const CONSUMER = [...CLIENT, "committed", "incrementalAssign", "incrementalUnassign", "consumeLoop"];

const checked = <T>(native: unknown, methods: readonly string[]): T => {
  const missing = methods.filter((name) => typeof (native as Record<string, unknown>)[name] !== "function");
  if (missing.length === 0) return native as T;
  throw new KrabkaError(
    "UNSUPPORTED",
    `The installed node-rdkafka lacks ${missing.join(", ")} on its native clients; version 3.6.1 has them`,
  );
};

const refused = (error: unknown): KrabkaError =>
  KrabkaError.is(error)
    ? error
    : new KrabkaError("INVALID_ARGUMENT", `librdkafka refuses its configuration: ${(error as Error).message}`, {
        cause: error,
      });

/** @throws {KrabkaError} `INVALID_ARGUMENT` where librdkafka knows no such setting, `UNSUPPORTED` */
export const createProducer = (config: RdKafkaConfig, topicConfig: RdKafkaConfig): NativeProducer => {
  try {
    return checked(new rdkafka.Producer({ ...config }, { ...topicConfig }).getClient(), PRODUCER);
  } catch (error) {
    throw refused(error);
  }
};

/** @throws {KrabkaError} as `createProducer` */
export const createConsumer = (config: RdKafkaConfig, topicConfig: RdKafkaConfig): NativeConsumer => {
  try {
    return checked(new rdkafka.KafkaConsumer({ ...config }, { ...topicConfig }).getClient(), CONSUMER);
  } catch (error) {
    throw refused(error);
  }
};

export interface NewTopic {
  readonly topic: string;
  readonly partitions: number;
  readonly replicationFactor: number;
  readonly settings: Readonly<Record<string, string>>;
}

/** Blocks a thread of libuv's pool for up to `timeoutMs`. */
export const createTopic = (config: RdKafkaConfig, topic: NewTopic, timeoutMs: number): Promise<void> => {
  const admin = rdkafka.AdminClient.create({ ...config });
  const created = new Promise<void>((resolve, reject) => {
    const wanted = {
      topic: topic.topic,
      num_partitions: topic.partitions,
      replication_factor: topic.replicationFactor,
      config: topic.settings,
    };
    admin.createTopic(wanted, timeoutMs, (error) => (error ? reject(error) : resolve()));
  });
  return created.finally(() => admin.disconnect());
};

interface Addon {
  err2str(code: number): string;
}

const addon: Addon = checked(createRequire(import.meta.url)("node-rdkafka/librdkafka.js"), ["err2str"]);

/** librdkafka's own text for a code. */
export const textOf = (code: number): string => addon.err2str(code);

/** The code by librdkafka's text, since of some errors node-rdkafka passes nothing else on. */
export const codeOfText: ReadonlyMap<string, number> = new Map(
  Object.values(rdkafka.CODES.ERRORS).map((code) => [textOf(code), code]),
);
