import {
  type AbortSignalLike,
  type CallOptions,
  type Clock,
  type CoordinationTopic,
  DEFAULT_PARTITIONS,
  Deadline,
  type FeedListener,
  KrabkaError,
  type Prepared,
  partitionForRole,
  type RawRecord,
  type RecordPosition,
  Role,
  type RoleDescription,
  type RoleFeed,
  type SessionOptions,
  type TopicPartition,
  type Transport,
  type TransportCapabilities,
  type WriterSession,
} from "@krabka/core";
import { systemClock } from "../../system-clock.js";
import { BrokerHost } from "../broker/broker-host.js";
import { BrokerClient } from "../link/broker-client.js";
import { HostConnector } from "../link/host-connector.js";
import type { Connector } from "../link/port.js";
import { SocketConnector } from "../socket/socket-connector.js";
import { checkSocketPath } from "../socket/socket-path.js";
import { ask } from "./answer.js";
import type {
  ConnectOptions,
  EmbeddedStatus,
  EmbeddedTransportOptions,
  OpenOptions,
  OpenOrConnectOptions,
} from "./embedded-options.js";
import { EmbeddedSession } from "./embedded-session.js";
import { mint } from "./mint.js";
import { place } from "./placement.js";
import { refusalError, unexpected } from "./refusals.js";
import { RoleReader } from "./role-reader.js";
import { TopicDirectory } from "./topic-directory.js";
import { readAll, readTail, type TailStart, type TopicRecord } from "./topic-reader.js";

const DEFAULT_TOPIC = "__coordination_state";
const DEFAULT_REQUEST_TIMEOUT_MS = 5000;
const SUPPORTED = { supported: true } as const;

/**
 * Krabka without Kafka, on one host: one durable log in a directory, owned by one process and shared with others through a
 * Unix socket. It keeps to the transport's contract; where it differs from Kafka it is stricter: a mint shuts the older
 * pair out of everything at once, fenced appends too.
 *
 * One disk is no quorum. What it promises, it promises for as long as that disk does.
 */
export class EmbeddedTransport implements Transport {
  readonly name = "embedded";
  readonly capabilities: TransportCapabilities = {
    fencedAppend: SUPPORTED,
    conditionalRemint: SUPPORTED,
    describe: SUPPORTED,
    uncommittedReads: SUPPORTED,
    binaryHeaders: SUPPORTED,
  };
  readonly #client: BrokerClient;
  readonly #clock: Clock;
  readonly #topic: CoordinationTopic;
  readonly #topics: Readonly<Record<string, number>>;
  readonly #requestTimeoutMs: number;
  readonly #connector: Connector;
  readonly #hosting: HostConnector | undefined;
  readonly #directory: TopicDirectory;
  readonly #sessions = new Set<EmbeddedSession>();
  readonly #readers = new Set<RoleReader>();
  #prepared: Promise<Prepared> | undefined;
  #closing: Promise<void> | undefined;

  private constructor(connector: Connector, options: EmbeddedTransportOptions, hosting?: HostConnector) {
    this.#clock = options.clock ?? systemClock;
    this.#topic = { name: options.topic ?? DEFAULT_TOPIC, partitions: options.partitions ?? DEFAULT_PARTITIONS };
    this.#topics = options.topics ?? {};
    this.#requestTimeoutMs = options.requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
    this.#connector = connector;
    this.#hosting = hosting;
    this.#client = new BrokerClient(connector, this.#clock);
    this.#directory = new TopicDirectory(this.#client, options.autoCreateTopics ?? 0);
  }

  /**
   * Owns the directory, until `close`. With `serve` others take part through the socket.
   *
   * @throws {LocalError} `IN_USE` when the directory has an owner, or the socket belongs to another directory's; `DAMAGED`,
   * `UNSUPPORTED`, `INVALID_ARGUMENT`, `FAILED`
   */
  static async open(options: OpenOptions): Promise<EmbeddedTransport> {
    const { clock = systemClock } = options;
    const socketPath = options.serve?.socketPath;
    const host = await BrokerHost.open(options, socketPath, clock);
    const hosting = new HostConnector({ options, socketPath, clock, host, others: undefined });
    return new EmbeddedTransport(hosting, options, hosting);
  }

  /**
   * Takes part through the owner's socket. It need not be there yet: calls wait for it within their limits.
   *
   * @throws {LocalError} `INVALID_ARGUMENT` for a path that no socket can have
   */
  static connect(options: ConnectOptions): EmbeddedTransport {
    checkSocketPath(options.socketPath);
    return new EmbeddedTransport(new SocketConnector(options.socketPath), options);
  }

  /**
   * Owns the directory if nobody does, and takes part through the owner's socket otherwise, now and whenever the owner
   * changes. Every process of the host may call it with the same options: the lock on the directory decides.
   *
   * @throws {LocalError} `INVALID_ARGUMENT` for a path that no socket can have
   * @throws {KrabkaError} `UNREACHABLE`, `UNSUPPORTED` (another version owns it), `ABORTED`
   */
  static async openOrConnect(options: OpenOrConnectOptions): Promise<EmbeddedTransport> {
    const { clock = systemClock, socketPath = `${options.directory}/owner.sock` } = options;
    checkSocketPath(socketPath);
    const others = new SocketConnector(socketPath);
    const hosting = new HostConnector({ options, socketPath, clock, host: undefined, others });
    const transport = new EmbeddedTransport(hosting, options, hosting);
    try {
      await transport.#client.ready(transport.#limitOf({ signal: options.signal }));
      return transport;
    } catch (error) {
      await transport.close();
      throw error;
    }
  }

  /**
   * Another transport of this process on the same directory, such as one with another coordination topic. It ends with its own
   * `close`, or with this one's.
   */
  sibling(options: EmbeddedTransportOptions): EmbeddedTransport {
    this.#refuseClosed();
    const connector = this.#connector;
    const borrowed: Connector = {
      where: connector.where,
      connect: (client, seen, listener) => connector.connect(client, seen, listener),
      close: async () => undefined,
    };
    return new EmbeddedTransport(borrowed, { clock: this.#clock, ...options }, this.#hosting);
  }

  status(): EmbeddedStatus {
    const host = this.#hosting?.host;
    return {
      isOwner: host !== undefined && host.failure === undefined,
      isConnected: this.#client.isConnected,
      log: host?.status(),
      warnings: host?.warnings ?? [],
    };
  }

  async prepare(options?: CallOptions): Promise<Prepared> {
    const limit = this.#open(options);
    // One preparation serves all calls; each waits for it within its own bounds.
    this.#prepared ??= this.#prepare(limit).catch((error: unknown) => {
      this.#prepared = undefined;
      throw error;
    });
    try {
      return await limit.race(this.#prepared);
    } catch (error) {
      throw this.#client.explain(error);
    }
  }

  follow(role: Role, listener: FeedListener): RoleFeed {
    this.#refuseClosed();
    const spec = { topic: this.#topic.name, partition: partitionForRole(role, this.#topic.partitions), role };
    const reader: RoleReader = new RoleReader(
      this.#client,
      spec,
      listener,
      (options) => this.#limitOf(options),
      () => this.#readers.delete(reader),
    );
    this.#readers.add(reader);
    return reader;
  }

  async appendUnfenced(
    target: TopicPartition,
    records: readonly RawRecord[],
    options?: CallOptions,
  ): Promise<readonly RecordPosition[]> {
    const limit = this.#open(options);
    if (records.length === 0) return [];
    const { topic, partition } = target;
    const counts = new Map([[topic, await this.#directory.partitionsOf(topic, limit)]]);
    const outgoing = records.map(({ key, value, headers }) => ({ key, value, headers, topic, partition }));
    const placement = place(outgoing, counts, this.#clock.wallMs(), 0);
    const [batch] = placement.batches;
    if (batch === undefined) return [];
    const answer = await ask(this.#client, { kind: "append-unfenced", batch }, limit);
    if (answer.status === "written") return placement.positions(answer);
    throw answer.status === "refused" ? refusalError(answer) : unexpected(answer, "an append");
  }

  async openSession(role: Role, options: SessionOptions): Promise<WriterSession> {
    const limit = this.#open(options);
    Role.of(role);
    const pair = await mint(this.#client, role, options, limit);
    this.#refuseClosed();
    const context = {
      client: this.#client,
      wallMs: () => this.#clock.wallMs(),
      limitOf: (bounds: CallOptions | undefined) => this.#limitOf(bounds),
      partitionsOf: (topic: string, bound: Deadline) => this.#directory.partitionsOf(topic, bound),
      onClose: () => this.#sessions.delete(session),
    };
    const session: EmbeddedSession = new EmbeddedSession(context, role, pair);
    this.#sessions.add(session);
    return session;
  }

  async describe(role: Role, options?: CallOptions): Promise<RoleDescription> {
    const result = await this.#client.query({ kind: "describe", role }, this.#open(options));
    if (result.kind !== "pair") throw new KrabkaError("UNREACHABLE", `The broker answered ${result.kind} to describe`);
    return { pair: result.pair, transactionState: result.pair === undefined ? "NotFound" : "Empty" };
  }

  async partitionsOf(topic: string, options?: CallOptions): Promise<number> {
    return this.#directory.partitionsOf(topic, this.#open(options));
  }

  /**
   * Creates a topic for the caller's own records, or checks that it has so many partitions.
   *
   * @throws {KrabkaError} `TOPIC_MISCONFIGURED`, `INVALID_ARGUMENT`, and as every call
   */
  async createTopic(topic: string, partitions: number, options?: CallOptions): Promise<void> {
    await this.#directory.create(topic, partitions, false, this.#open(options));
  }

  /**
   * What a partition holds now, from an offset on.
   *
   * @throws {KrabkaError} `UNKNOWN_TOPIC`; `INVALID_ARGUMENT` when records from there on are no longer kept (its
   * cause is a `LocalError` `TOO_OLD`), or never were (`OTHER_HISTORY`)
   */
  readTopic(
    target: TopicPartition,
    options: CallOptions & { readonly from?: bigint | "earliest" | undefined } = {},
  ): AsyncGenerator<TopicRecord, void, void> {
    return readAll(this.#client, target, options, (bounds) => this.#limitOf(bounds));
  }

  /**
   * A partition's records from an offset on, as they come, until the loop is left or the signal fires. It waits while the
   * owner is away. A reader that is so slow that records are dropped before it came to them is told by a rejection.
   *
   * @throws {KrabkaError} `UNKNOWN_TOPIC`; `ABORTED`; `INVALID_ARGUMENT` when records from there on are no longer kept (its
   * cause is a `LocalError` `TOO_OLD`), or never were (`OTHER_HISTORY`)
   */
  tail(
    target: TopicPartition,
    options: { readonly from?: TailStart | undefined; readonly signal?: AbortSignalLike | undefined } = {},
  ): AsyncGenerator<TopicRecord, void, void> {
    return readTail(this.#client, target, options, (bounds) => this.#limitOf(bounds));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    for (const reader of [...this.#readers]) reader.end(new KrabkaError("CLOSED", "The transport was closed"));
    await Promise.all([...this.#sessions].map((session) => session.close()));
    await this.#client.close();
  }

  async #prepare(limit: Deadline): Promise<Prepared> {
    const { name, partitions } = this.#topic;
    await this.#directory.create(name, partitions, true, limit);
    for (const [topic, count] of Object.entries(this.#topics)) await this.#directory.create(topic, count, false, limit);
    return { topic: this.#topic, warnings: [] };
  }

  #open(options: CallOptions | undefined): Deadline {
    this.#refuseClosed();
    const limit = this.#limitOf(options);
    limit.throwIfEnded();
    return limit;
  }

  #limitOf(options: CallOptions | undefined): Deadline {
    return new Deadline(this.#clock, options, this.#requestTimeoutMs);
  }

  #refuseClosed(): void {
    if (this.#closing !== undefined) throw new KrabkaError("CLOSED", "The transport was closed");
  }
}
