import {
  type CallOptions,
  type Clock,
  DEFAULT_PARTITIONS,
  type Deadline,
  type DescribeOptions,
  type FeedListener,
  KrabkaError,
  MAX_TIMER_MS,
  type Prepared,
  partitionForRole,
  type RawRecord,
  type RecordPosition,
  type Role,
  type RoleDescription,
  type RoleFeed,
  type SessionOptions,
  type TopicPartition,
  type Transport,
  type TransportCapabilities,
  type WriterSession,
} from "@krabka/core";
import type { Kafka, KafkaConfig } from "kafkajs";
import { ClusterMap } from "./cluster-map.js";
import { CoordinationReader } from "./coordination-reader.js";
import { decompress } from "./decompress.js";
import { openWire } from "./kafkajs-internals.js";
import { describeRole, mint } from "./mint.js";
import { produceAll } from "./produce.js";
import { systemClock } from "./system-clock.js";
import { prepareTopic } from "./topic-setup.js";
import { encodeBatch, ORDINARY_PRODUCER } from "./wire/record-batch.js";
import type { Wire } from "./wire-connection.js";
import { requireWriteRight } from "./write-right.js";
import { KafkaJsWriterSession } from "./writer-session.js";

/** How lease records are written: `append` needs a broker that takes idempotent appends under a role's pair. */
export type LeaseRecords = "auto" | "append" | "transaction";

export interface KafkaJsTransportOptions {
  /** The caller's own client, with its TLS, SASL and logging, or the configuration for one. */
  readonly kafka: Kafka | KafkaConfig;
  /** @default "__coordination_state" */
  readonly topic?: string | undefined;
  /** Partitions of that topic; the count never changes once it exists. @default 16 */
  readonly partitions?: number | undefined;
  /** Used when the topic is created. @default 3, or the number of brokers where that is smaller */
  readonly replicationFactor?: number | undefined;
  /** @default "auto": appends, until a broker refuses one as such */
  readonly leaseRecords?: LeaseRecords | undefined;
  /** How long a broker may stay silent before its connection is given up. Calls without a limit take this one. @default 5000 */
  readonly requestTimeoutMs?: number | undefined;
  /** @default the machine's clocks */
  readonly clock?: Clock | undefined;
  /**
   * Is told of reading that fails for a while, of listeners that throw, and of brokers that take no fenced appends.
   * @default none; kafkajs logs by itself
   */
  readonly logger?: TransportLogger | undefined;
}

export interface TransportLogger {
  warn(message: string, details: object): void;
}

export const DEFAULT_TOPIC = "__coordination_state";
const DEFAULT_REQUEST_TIMEOUT_MS = 5000;
const SUPPORTED = { supported: true } as const;
/** A reader that was away for longer than this share of the tombstones' life starts over. */
const STALE_SHARE = 0.5;
/** Below this a pause is ordinary: a long poll alone takes a second. */
const SHORTEST_STALE_MS = 3000;

const inRange = (name: string, value: number, least: number, most: number): number => {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new KrabkaError("INVALID_ARGUMENT", `${name} must be an integer in ${least}..${most}; got ${value}`);
};

/** Krabka on Kafka through kafkajs. One transport serves any number of roles over at most three connections a broker. */
export class KafkaJsTransport implements Transport {
  readonly name = "kafkajs";
  readonly #wire: Wire;
  readonly #map: ClusterMap;
  readonly #reader: CoordinationReader;
  readonly #topic: string;
  readonly #partitions: number;
  readonly #replicationFactor: number | undefined;
  readonly #leaseRecords: LeaseRecords;
  readonly #logger: TransportLogger | undefined;
  readonly #sessions = new Set<WriterSession>();
  #staleAfterMs = Number.POSITIVE_INFINITY;
  #appendRefusal: string | undefined;
  #preparing: Promise<Prepared> | undefined;
  #closed: Promise<void> | undefined;

  /**
   * @throws {KrabkaError} `INVALID_ARGUMENT`; `UNSUPPORTED` when this kafkajs is another version, naming what it lacks
   */
  constructor(options: KafkaJsTransportOptions) {
    const requestTimeoutMs = inRange(
      "requestTimeoutMs",
      options.requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS,
      1,
      MAX_TIMER_MS,
    );
    this.#topic = options.topic ?? DEFAULT_TOPIC;
    this.#partitions = inRange("partitions", options.partitions ?? DEFAULT_PARTITIONS, 1, 2 ** 31 - 1);
    this.#replicationFactor =
      options.replicationFactor === undefined
        ? undefined
        : inRange("replicationFactor", options.replicationFactor, 1, 32767);
    this.#leaseRecords = options.leaseRecords ?? "auto";
    this.#wire = openWire(options.kafka, requestTimeoutMs);
    this.#map = new ClusterMap(this.#wire, options.clock ?? systemClock, requestTimeoutMs);
    const { logger } = options;
    this.#logger = logger;
    const context = {
      map: this.#map,
      staleAfterMs: () => this.#staleAfterMs,
      warn: (message: string, error: unknown) => logger?.warn(message, { error }),
    };
    this.#reader = new CoordinationReader(this.#wire, context, this.#topic, decompress);
  }

  get capabilities(): TransportCapabilities {
    const refusal = this.#fencedAppendRefusal();
    return {
      fencedAppend: refusal === undefined ? SUPPORTED : { supported: false, reason: refusal },
      conditionalRemint: SUPPORTED,
      describe: SUPPORTED,
      uncommittedReads: SUPPORTED,
      binaryHeaders: SUPPORTED,
    };
  }

  prepare(options?: CallOptions): Promise<Prepared> {
    return this.#open(options, async (deadline) => {
      this.#preparing ??= this.#prepare(deadline).catch((error: unknown) => {
        this.#preparing = undefined;
        throw error;
      });
      return deadline.race(this.#preparing);
    });
  }

  follow(role: Role, listener: FeedListener): RoleFeed {
    if (this.#closed !== undefined) throw new KrabkaError("CLOSED", "The transport was closed", { role });
    return this.#reader.follow(role, partitionForRole(role, this.#partitions), listener);
  }

  appendUnfenced(
    target: TopicPartition,
    records: readonly RawRecord[],
    options?: CallOptions,
  ): Promise<readonly RecordPosition[]> {
    return this.#open(options, async (deadline) => {
      if (records.length === 0) return [];
      const timestampMs = this.#map.clock.wallMs();
      const batch = encodeBatch(
        records.map((record) => ({ ...record, timestampMs })),
        ORDINARY_PRODUCER,
      );
      const plain = { transactionalId: null, repeatable: false, awaitsMarker: false };
      const { results } = await produceAll(this.#map, [{ ...target, batch }], plain, deadline);
      const result = results[0];
      if (result?.status === "written") {
        const { baseOffset, appendedAtMs } = result;
        return records.map((_, index) => ({ ...target, offset: baseOffset + BigInt(index), appendedAtMs }));
      }
      const cause = result?.error;
      if (KrabkaError.is(cause)) throw cause;
      throw new KrabkaError("UNREACHABLE", `Writing to ${target.topic}-${target.partition}: no answer`, { cause });
    });
  }

  openSession(role: Role, options: SessionOptions): Promise<WriterSession> {
    return this.#open(options, async (deadline) => {
      const { transactionTimeoutMs, mayMint } = options;
      inRange("transactionTimeoutMs", transactionTimeoutMs, 1, MAX_TIMER_MS);
      const pair = await mint(this.#map, role, transactionTimeoutMs, mayMint, deadline);
      const session: WriterSession = new KafkaJsWriterSession(
        {
          map: this.#map,
          role,
          transactionTimeoutMs,
          fencedAppendRefusal: () => this.#fencedAppendRefusal(),
          onAppendUnsupported: (error) => this.#doWithoutAppends(error),
          onClose: () => this.#sessions.delete(session),
        },
        pair,
      );
      this.#sessions.add(session);
      if (this.#closed !== undefined) {
        await session.close();
        throw new KrabkaError("CLOSED", "The transport was closed", { role });
      }
      return session;
    });
  }

  describe(role: Role, options?: DescribeOptions): Promise<RoleDescription> {
    return this.#open(options, async (deadline) => {
      if (options?.requireWrite) await requireWriteRight(this.#map, role, deadline);
      const { pair, state } = await describeRole(this.#map, role, deadline);
      return { pair, transactionState: state };
    });
  }

  partitionsOf(topic: string, options?: CallOptions): Promise<number> {
    return this.#open(options, async (deadline) => (await this.#map.topic(topic, deadline)).partitions.length);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#reader.close();
    await Promise.all([...this.#sessions].map((session) => session.close()));
    await this.#wire.close();
  }

  async #prepare(deadline: Deadline): Promise<Prepared> {
    try {
      const wanted = { name: this.#topic, partitions: this.#partitions, replicationFactor: this.#replicationFactor };
      const { topic, warnings, deleteRetentionMs } = await prepareTopic(this.#map, wanted, deadline);
      this.#staleAfterMs = Math.max(SHORTEST_STALE_MS, deleteRetentionMs * STALE_SHARE);
      return { topic, warnings };
    } catch (error) {
      const silent = this.#wire.tried;
      if (!KrabkaError.is(error) || error.code !== "TIMEOUT" || silent.length === 0) throw error;
      throw new KrabkaError("UNREACHABLE", `No broker answered; tried ${silent.join(", ")}`, { cause: error });
    }
  }

  /** What one role's session learned holds for all: the same brokers serve them. */
  #doWithoutAppends(error: Error): void {
    if (this.#leaseRecords !== "auto" || this.#appendRefusal !== undefined) return;
    this.#appendRefusal = error.message;
    this.#logger?.warn("The broker takes no fenced appends; lease records go in transactions", { error });
  }

  #fencedAppendRefusal(): string | undefined {
    return this.#leaseRecords === "transaction" ? 'leaseRecords is set to "transaction"' : this.#appendRefusal;
  }

  async #open<T>(options: CallOptions | undefined, call: (deadline: Deadline) => Promise<T>): Promise<T> {
    if (this.#closed !== undefined) throw new KrabkaError("CLOSED", "The transport was closed");
    return call(this.#map.deadline(options));
  }
}
