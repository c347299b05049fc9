import {
  Backoff,
  type CallOptions,
  type Clock,
  type CoordinationTopic,
  Deadline,
  type FeedListener,
  KrabkaError,
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
import { capabilitiesWith, UNSUPPORTED_REASONS } from "./capabilities.js";
import { ClientConfig } from "./client-config.js";
import { CoordinationReader } from "./coordination-reader.js";
import type { Describer } from "./describer.js";
import { mint } from "./mint.js";
import type { RdKafkaConfig } from "./native-binding.js";
import { OrdinaryWriter } from "./ordinary-writer.js";
import type { ProducerInstance } from "./producer-instance.js";
import { ProducerShelf } from "./producer-shelf.js";
import { systemClock } from "./system-clock.js";
import { TopicDirectory } from "./topic-directory.js";
import { TopicSetup } from "./topic-setup.js";
import { WritePlanner } from "./write-plan.js";
import { RdKafkaSession } from "./writer-session.js";

/** The methods of pino's logger, or of `console`, that are used here. */
export interface Logger {
  warn(details: object, message: string): void;
}

export interface RdKafkaTransportOptions {
  /** `host:port`, separated by commas, or librdkafka's global configuration, such as for TLS and SASL. */
  readonly brokers: string | RdKafkaConfig;
  /** @default "__coordination_state" */
  readonly topic?: string | undefined;
  /** @default 16 */
  readonly partitions?: number | undefined;
  /** @default 10_000 */
  readonly requestTimeoutMs?: number | undefined;
  /** @default none: `describe` is unsupported, and `prepare` can't check the topic's clean-up policy */
  readonly describer?: Describer | undefined;
  /** @default the machine's */
  readonly clock?: Clock | undefined;
  /** @default none */
  readonly logger?: Logger | undefined;
}

const DEFAULT_TOPIC = "__coordination_state";
const DEFAULT_PARTITIONS = 16;
const DEFAULT_REQUEST_TIMEOUT_MS = 10_000;

/**
 * Krabka on Kafka through node-rdkafka: one native producer for each session, one for registrations, and two consumers for
 * everything that is read.
 */
export class RdKafkaTransport implements Transport {
  readonly name = "rdkafka";
  readonly capabilities: TransportCapabilities;
  readonly #topic: CoordinationTopic;
  readonly #requestTimeoutMs: number;
  readonly #clock: Clock;
  readonly #describer: Describer | undefined;
  readonly #reader: CoordinationReader;
  readonly #topics: TopicDirectory;
  readonly #setup: TopicSetup;
  readonly #planner: WritePlanner;
  readonly #ordinary: OrdinaryWriter;
  readonly #shelf: ProducerShelf;
  readonly #sessions = new Set<RdKafkaSession>();
  /** On their way to a session. */
  readonly #minting = new Set<ProducerInstance>();
  /** Native clients that are being freed. */
  readonly #ending = new Set<Promise<void>>();
  #prepared: Promise<Prepared> | undefined;
  #closing: Promise<void> | undefined;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` where librdkafka refuses the configuration */
  constructor(options: RdKafkaTransportOptions) {
    const { topic = DEFAULT_TOPIC, partitions = DEFAULT_PARTITIONS, clock = systemClock } = options;
    this.#requestTimeoutMs = options.requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
    this.#topic = { name: topic, partitions };
    this.#clock = clock;
    this.#describer = options.describer;
    this.capabilities = capabilitiesWith({ describer: options.describer !== undefined });
    const config = new ClientConfig(options.brokers, this.#requestTimeoutMs);
    this.#reader = new CoordinationReader(config, { topic, clock, requestTimeoutMs: this.#requestTimeoutMs });
    this.#topics = new TopicDirectory(this.#reader.consumer);
    this.#setup = new TopicSetup(config, this.#reader.consumer, options.describer);
    this.#planner = new WritePlanner(this.#topics, () => clock.wallMs());
    this.#ordinary = new OrdinaryWriter(config, clock);
    const { logger } = options;
    this.#shelf = new ProducerShelf(config, clock, (role, code, text) =>
      logger?.warn({ role, code }, `librdkafka: ${text}`),
    );
  }

  prepare(options?: CallOptions): Promise<Prepared> {
    const deadline = this.#deadline(options);
    deadline.waitsFor(this.#reader.consumer.trouble);
    this.#prepared ??= this.#open(() => this.#setup.prepare(this.#topic, deadline)).catch((error: unknown) => {
      this.#prepared = undefined;
      throw error;
    });
    return deadline.race(this.#prepared);
  }

  follow(role: Role, listener: FeedListener): RoleFeed {
    return this.#reader.follow(role, partitionForRole(role, this.#topic.partitions), listener);
  }

  async appendUnfenced(
    target: TopicPartition,
    records: readonly RawRecord[],
    options?: CallOptions,
  ): Promise<readonly RecordPosition[]> {
    const deadline = this.#deadline(options);
    deadline.throwIfEnded();
    return await this.#open(() => this.#ordinary.append(target, records, deadline));
  }

  async openSession(role: Role, options: SessionOptions): Promise<WriterSession> {
    const deadline = this.#deadline(options);
    deadline.throwIfEnded();
    return await this.#open(() => this.#mint(role, options, deadline));
  }

  async describe(role: Role, options?: CallOptions): Promise<RoleDescription> {
    if (this.#describer === undefined) throw new KrabkaError("UNSUPPORTED", UNSUPPORTED_REASONS.describe, { role });
    const deadline = this.#deadline(options);
    const describer = this.#describer;
    // Without the question whether it may write for the role: it may well be somebody else.
    const { signal, timeoutMs } = options ?? {};
    return await this.#open(() => deadline.race(describer.describe(role, { signal, timeoutMs })));
  }

  async partitionsOf(topic: string, options?: CallOptions): Promise<number> {
    const deadline = this.#deadline(options);
    deadline.throwIfEnded();
    return await this.#open(() => this.#topics.partitionsOf(topic, deadline));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #mint(role: Role, options: SessionOptions, deadline: Deadline): Promise<WriterSession> {
    const backoff = new Backoff(20, 250);
    for (;;) {
      const session = await this.#tryMint(role, options, deadline);
      if (session !== undefined) return session;
      await deadline.pause(backoff.next());
    }
  }

  /** @returns undefined when the coordinator is not ready and did nothing */
  async #tryMint(role: Role, options: SessionOptions, deadline: Deadline): Promise<WriterSession | undefined> {
    const { transactionTimeoutMs, mayMint } = options;
    const producer = this.#shelf.take(role, transactionTimeoutMs);
    this.#minting.add(producer);
    let kept = false;
    let asked = false;
    try {
      await deadline.race(producer.connect(deadline));
      asked = true;
      const minted = await deadline.race(mint(producer, role, transactionTimeoutMs, mayMint, deadline));
      if (this.#closing !== undefined) throw closedError();
      if (minted === "not-yet") return undefined;
      kept = true;
      if (minted !== "not-sent") return this.#session(role, minted.pair, producer);
      this.#shelf.put(role, transactionTimeoutMs, producer);
      throw new KrabkaError("BUSY", `The state of role ${JSON.stringify(role)} no longer says to mint`, { role });
    } finally {
      this.#minting.delete(producer);
      if (!kept) {
        const closed = producer.close();
        this.#end(closed);
        // librdkafka would repeat the request: the call ends only when it can't any more.
        if (asked) await closed;
      }
    }
  }

  #session(role: Role, pair: WriterSession["pair"], producer: ProducerInstance): RdKafkaSession {
    const session = new RdKafkaSession({
      role,
      pair,
      producer,
      planner: this.#planner,
      clock: this.#clock,
      requestTimeoutMs: this.#requestTimeoutMs,
      onClose: (closed, done) => {
        this.#sessions.delete(closed);
        this.#end(done);
      },
    });
    this.#sessions.add(session);
    return session;
  }

  #end(closed: Promise<void>): void {
    this.#ending.add(closed);
    void closed.finally(() => this.#ending.delete(closed));
  }

  async #close(): Promise<void> {
    for (const session of [...this.#sessions]) void session.close();
    for (const producer of this.#minting) this.#end(producer.close());
    await Promise.all([this.#setup.close(), this.#reader.close(), this.#ordinary.close(), this.#shelf.close()]);
    while (this.#ending.size > 0) await Promise.all(this.#ending);
  }

  #deadline(options: CallOptions | undefined): Deadline {
    return new Deadline(this.#clock, options, this.#requestTimeoutMs);
  }

  /** Runs a call unless the transport was closed; one that closing ended says so. */
  async #open<T>(call: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) throw closedError();
    try {
      return await call();
    } catch (error) {
      throw this.#closing === undefined ? error : closedError(error);
    }
  }
}

const closedError = (cause?: unknown): KrabkaError => new KrabkaError("CLOSED", "The transport was closed", { cause });
