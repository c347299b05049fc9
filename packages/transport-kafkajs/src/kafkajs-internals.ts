import type { Socket } from "node:net";
import { KrabkaError } from "@krabka/core";
import kafkajs, { type Kafka, type KafkaConfig } from "kafkajs";
import { ALL_APIS, API_VERSIONS } from "./wire/api.js";
import { ByteReader } from "./wire/byte-reader.js";
import { type BrokerAddress, decodeApiVersions } from "./wire/cluster-requests.js";
import { type Lane, UnansweredError, type Wire, type WireRequest } from "./wire-connection.js";

// The only file that reaches below kafkajs's public API (2.2.4). It takes connections from it, with the caller's TLS,
// SASL, socket factory and logging, and sends requests as bytes. Brokers, leaders and coordinators are tracked elsewhere:
// kafkajs's own pool retries from 300 ms on and opens two sockets for two concurrent calls of `connect`.

interface Encoded {
  readonly buf: Buffer;
  readonly buffer: Buffer;
}

interface KafkaJsRequest {
  readonly request: {
    readonly apiKey: number;
    readonly apiVersion: number;
    readonly apiName: string;
    readonly encode: () => Promise<Encoded>;
  };
  readonly response: {
    readonly decode: (payload: Buffer) => Promise<{ readonly payload: Buffer }>;
    readonly parse: (decoded: { readonly payload: Buffer }) => Promise<Buffer>;
  };
  readonly requestTimeout: number;
  readonly logResponseError: boolean;
}

interface KafkaJsConnection {
  readonly socket?: Socket;
  readonly requestQueue: { destroy(): void; scheduleCheckPendingRequests(): void };
  isConnected(): boolean;
  authenticate(): Promise<void>;
  send(request: KafkaJsRequest): Promise<Buffer>;
  rejectRequests(error: Error): void;
  disconnect(): Promise<unknown>;
}

interface KafkaJsPool {
  readonly host: string;
  readonly port: number;
  getConnection(index: number): Promise<KafkaJsConnection>;
  setVersions(versions: Record<number, { minVersion: number; maxVersion: number }>): void;
  setSupportAuthenticationProtocol(supported: boolean): void;
}

interface PoolBuilder {
  build(destination?: { host: string; port: number; rack: string | null }): Promise<KafkaJsPool>;
}

const SASL_AUTHENTICATE_KEY = 36;
/** How long one broker is waited for before the next is asked as well. */
const NEXT_BROKER_AFTER_MS = 500;
const NO_ANSWER_AFTER_MS = 2 ** 31 - 1;

const missing = (what: string): KrabkaError =>
  new KrabkaError("UNSUPPORTED", `This kafkajs lacks ${what}; version 2.2.4 is wanted`);

const requireMethods = (what: string, value: unknown, names: readonly string[]): void => {
  for (const name of names) {
    if (typeof (value as Record<string, unknown> | undefined)?.[name] !== "function") {
      throw missing(`${what}.${name}()`);
    }
  }
};

/** @throws {KrabkaError} `UNSUPPORTED`, naming what this kafkajs lacks. */
const poolBuilderOf = (kafka: Kafka): PoolBuilder => {
  const symbol = Object.getOwnPropertySymbols(kafka).find(
    ({ description }) => description === "private:Kafka:createCluster",
  );
  const createCluster = symbol && (kafka as unknown as Record<symbol, unknown>)[symbol];
  if (typeof createCluster !== "function") throw missing("the private createCluster of Kafka");
  const cluster = createCluster({ allowAutoTopicCreation: false }) as { connectionPoolBuilder?: PoolBuilder };
  requireMethods("Cluster.connectionPoolBuilder", cluster.connectionPoolBuilder, ["build"]);
  return cluster.connectionPoolBuilder as PoolBuilder;
};

const asKafka = (kafka: Kafka | KafkaConfig, requestTimeoutMs: number): Kafka => {
  if (kafka instanceof kafkajs.Kafka) return kafka;
  // A Kafka object of another copy of kafkajs has no class in common with this one.
  if (typeof (kafka as Partial<Kafka>).producer === "function") return kafka as unknown as Kafka;
  return new kafkajs.Kafka({ requestTimeout: requestTimeoutMs, ...(kafka as KafkaConfig) });
};

const nameOf = (error: unknown): string | undefined => (error instanceof Error ? error.name : undefined);

/** The words of the innermost cause, such as what TLS said about a certificate. */
const rootOf = (error: unknown): string => {
  let root = error;
  while (root instanceof Error && root.cause !== undefined) root = root.cause;
  return root instanceof Error ? root.message : String(root);
};

/** One connection that is opened when needed and thrown away when it fails. */
class Channel {
  readonly #builder: PoolBuilder;
  readonly #destination: BrokerAddress | undefined;
  readonly #inUse = new Set<Promise<void>>();
  #opening: Promise<KafkaJsConnection> | undefined;
  /** Connected, and not yet introduced. */
  #started: KafkaJsConnection | undefined;
  #open: KafkaJsConnection | undefined;
  #ended: Error | undefined;
  address: string;

  constructor(builder: PoolBuilder, destination: BrokerAddress | undefined) {
    this.#builder = builder;
    this.#destination = destination;
    this.address =
      destination === undefined ? "a broker of the configuration" : `${destination.host}:${destination.port}`;
  }

  get isOpen(): boolean {
    return this.#open?.isConnected() === true;
  }

  /** Has no connection, and makes none. */
  get isIdle(): boolean {
    return this.#open === undefined && this.#opening === undefined;
  }

  /** @param question for how long the answer is of use */
  send(request: WireRequest, question?: Promise<unknown>): Promise<ByteReader> {
    const answer = this.#send(request);
    const use = (question ?? answer).then(
      () => undefined,
      () => undefined,
    );
    this.#inUse.add(use);
    void use.then(() => this.#inUse.delete(use));
    return answer;
  }

  /** Ends what is under way, for this reason. */
  close(reason: Error): void {
    this.#ended ??= reason;
    for (const connection of [this.#open, this.#started]) this.#discard(connection, this.#ended);
  }

  /** Closes once nobody waits for an answer. */
  async retire(): Promise<void> {
    while (this.#inUse.size > 0) await Promise.all(this.#inUse);
    this.close(new UnansweredError(`${this.address} is no longer asked`, false));
  }

  async #send(request: WireRequest): Promise<ByteReader> {
    const startedAtMs = performance.now();
    const connection = await this.#connection(request.timeoutMs);
    return this.#sendOn(connection, {
      ...request,
      timeoutMs: Math.max(1, request.timeoutMs - (performance.now() - startedAtMs)),
    });
  }

  #connection(timeoutMs: number): Promise<KafkaJsConnection> {
    const open = this.#open;
    if (open?.isConnected()) return Promise.resolve(open);
    this.#opening ??= this.#connect(timeoutMs).finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  async #connect(timeoutMs: number): Promise<KafkaJsConnection> {
    this.#open = undefined;
    let started: KafkaJsConnection | undefined;
    try {
      this.#throwIfEnded();
      // A pool of its own for each connection: kafkajs keeps the rest of a cut response in a connection that it reopens.
      const pool = await this.#builder.build(this.#destination && { ...this.#destination });
      requireMethods("ConnectionPool", pool, ["getConnection", "setVersions", "setSupportAuthenticationProtocol"]);
      this.address = `${pool.host}:${pool.port}`;
      started = await pool.getConnection(0);
      this.#throwIfEnded();
      this.#started = started;
      requireMethods("Connection", started, ["isConnected", "authenticate", "send", "rejectRequests", "disconnect"]);
      requireMethods("Connection.requestQueue", started.requestQueue, ["destroy", "scheduleCheckPendingRequests"]);
      if (started.socket === undefined) throw missing("Connection.socket");
      this.#tune(started);
      await this.#introduce(pool, started, timeoutMs);
      this.#throwIfEnded();
      this.#open = started;
      return started;
    } catch (error) {
      this.#discard(started, error instanceof Error ? error : new Error(String(error)));
      if (KrabkaError.is(error)) throw error;
      throw new UnansweredError(`No connection to ${this.address}`, false, error);
    } finally {
      this.#started = undefined;
    }
  }

  #throwIfEnded(): void {
    if (this.#ended !== undefined) throw this.#ended;
  }

  #tune(connection: KafkaJsConnection): void {
    // Node leaves Nagle's algorithm on, which holds small requests back until the previous one is acknowledged.
    connection.socket?.setNoDelay(true);
    // Time limits are kept here; kafkajs's own is one per cluster and looks every 100 ms.
    connection.requestQueue.destroy();
    // Nothing is queued or throttled here, and each answer would set a timer with a negative delay.
    connection.requestQueue.scheduleCheckPendingRequests = () => undefined;
  }

  async #introduce(pool: KafkaJsPool, connection: KafkaJsConnection, timeoutMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    // kafkajs waits for ever on a broker that is silent during the SASL exchange.
    const expiry = new Promise<never>((_, reject) => {
      const expire = (): void => reject(new UnansweredError(`${this.address} was silent for ${timeoutMs} ms`, false));
      timer = setTimeout(expire, timeoutMs);
    });
    try {
      await Promise.race([this.#authenticate(pool, connection, timeoutMs), expiry]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #authenticate(pool: KafkaJsPool, connection: KafkaJsConnection, timeoutMs: number): Promise<void> {
    const answer = await this.#sendOn(connection, { api: API_VERSIONS, encode: () => Buffer.alloc(0), timeoutMs });
    const { code, served } = decodeApiVersions(answer);
    if (code !== 0) throw new UnansweredError(`${this.address} answered ApiVersions with code ${code}`, false);
    for (const { name, key, version } of ALL_APIS) {
      const range = served.get(key);
      if (range === undefined || version < range.minVersion || version > range.maxVersion) {
        const found = range === undefined ? "does not serve it" : `serves ${range.minVersion} to ${range.maxVersion}`;
        throw new KrabkaError("UNSUPPORTED", `${name} version ${version} is wanted; ${this.address} ${found}`);
      }
    }
    pool.setVersions(Object.fromEntries(served));
    pool.setSupportAuthenticationProtocol(served.has(SASL_AUTHENTICATE_KEY));
    await this.#logIn(connection);
  }

  /**
   * kafkajs turns whatever ends the SASL exchange into one kind of error, also a connection that broke. So the exchange
   * is listened to: only the broker's own word is about the credentials.
   */
  async #logIn(connection: KafkaJsConnection): Promise<void> {
    const send = connection.send.bind(connection);
    let failure: { readonly error: unknown } | undefined;
    connection.send = async (request) => {
      try {
        return await send(request);
      } catch (error) {
        failure = { error };
        throw error;
      }
    };
    try {
      await connection.authenticate();
    } catch (error) {
      const decisive = failure === undefined ? nameOf(error) : nameOf(failure.error);
      if (decisive !== "KafkaJSSASLAuthenticationError" && decisive !== "KafkaJSProtocolError") throw error;
      const why = error instanceof Error ? error.message : String(error);
      throw new KrabkaError("UNAUTHORIZED", `${this.address} refused the credentials: ${why}`, { cause: error });
    } finally {
      connection.send = send;
    }
  }

  async #sendOn(connection: KafkaJsConnection, { api, encode, timeoutMs }: WireRequest): Promise<ByteReader> {
    let sent = false;
    let thrown: { readonly error: unknown } | undefined;
    const timer = setTimeout(() => {
      this.#discard(connection, new UnansweredError(`${api.name} to ${this.address}: no answer`, sent));
    }, timeoutMs);
    try {
      const payload = await connection.send({
        request: {
          apiKey: api.key,
          apiVersion: api.version,
          apiName: api.name,
          encode: async () => {
            let body: Uint8Array;
            try {
              body = encode();
            } catch (error) {
              thrown = { error };
              throw error;
            }
            sent = true;
            // The tagged fields of a flexible request header (none) stand between kafkajs's header and the body.
            const bytes = api.flexible
              ? Buffer.concat([Buffer.alloc(1), body])
              : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
            return { buf: bytes, buffer: bytes };
          },
        },
        response: { decode: async (bytes) => ({ payload: bytes }), parse: async ({ payload: bytes }) => bytes },
        requestTimeout: NO_ANSWER_AFTER_MS,
        logResponseError: false,
      });
      const reader = new ByteReader(payload);
      if (api.flexible) reader.tags();
      return reader;
    } catch (error) {
      if (thrown !== undefined) throw thrown.error;
      if (KrabkaError.is(error)) throw error;
      throw new UnansweredError(`${api.name} to ${this.address}: no answer`, sent, error);
    } finally {
      clearTimeout(timer);
    }
  }

  #discard(connection: KafkaJsConnection | undefined, reason: Error): void {
    if (connection === undefined) return;
    if (this.#open === connection) this.#open = undefined;
    connection.rejectRequests(reason);
    connection.disconnect().catch(() => undefined);
    connection.socket?.destroy();
  }
}

class Node {
  readonly #channels = new Map<Lane, Channel>();
  readonly #builder: PoolBuilder;
  readonly address: BrokerAddress;

  constructor(builder: PoolBuilder, address: BrokerAddress) {
    this.#builder = builder;
    this.address = address;
  }

  lane(lane: Lane): Channel {
    let channel = this.#channels.get(lane);
    if (channel === undefined) {
      channel = new Channel(this.#builder, this.address);
      this.#channels.set(lane, channel);
    }
    return channel;
  }

  close(reason: Error): void {
    for (const channel of this.#channels.values()) channel.close(reason);
  }
}

class KafkaJsWire implements Wire {
  readonly #builder: PoolBuilder;
  readonly #nodes = new Map<number, Node>();
  readonly #left = new Set<Node | Channel>();
  #seed: Channel;
  #tried: string[] = [];
  #closed = false;

  constructor(builder: PoolBuilder) {
    this.#builder = builder;
    this.#seed = new Channel(builder, undefined);
  }

  get tried(): readonly string[] {
    return this.#tried;
  }

  async request(nodeId: number, lane: Lane, request: WireRequest): Promise<ByteReader> {
    this.#refuseClosed();
    const node = this.#nodes.get(nodeId);
    if (node === undefined) throw new UnansweredError(`Broker ${nodeId} is not known`, false);
    return node.lane(lane).send(request);
  }

  async requestAny(request: WireRequest): Promise<ByteReader> {
    this.#refuseClosed();
    const known = [...this.#nodes.values()].map((node) => node.lane("write"));
    const candidates = [...known.filter(({ isOpen }) => isOpen), ...known.filter(({ isOpen }) => !isOpen), this.#seed];
    this.#tried = [];
    let answered: (answer: ByteReader) => void = () => undefined;
    let failed: (error: unknown) => void = () => undefined;
    const question = new Promise<ByteReader>((resolve, reject) => {
      [answered, failed] = [resolve, reject];
    });
    let open = 0;
    let timer: NodeJS.Timeout | undefined;
    const fail = (channel: Channel, error: unknown): void => {
      open -= 1;
      this.#tried.push(`${channel.address} (${rootOf(error)})`);
      if (channel === this.#seed) this.#replaceSeed();
      if (!(error instanceof UnansweredError) || (open === 0 && candidates.length === 0)) {
        clearTimeout(timer);
        failed(error);
      } else tryNext();
    };
    const tryNext = (): void => {
      clearTimeout(timer);
      const channel = candidates.shift();
      if (channel === undefined) return;
      open += 1;
      // A silent broker must not keep the question from the others.
      timer = setTimeout(tryNext, NEXT_BROKER_AFTER_MS);
      channel.send(request, question).then(
        (answer) => {
          clearTimeout(timer);
          candidates.length = 0;
          answered(answer);
          // It was asked because known brokers were slow, and would be one more connection to one of them.
          if (known.length > 0 && !this.#seed.isIdle) this.#replaceSeed();
        },
        (error: unknown) => fail(channel, error),
      );
    };
    tryNext();
    return question;
  }

  learn(brokers: readonly BrokerAddress[]): void {
    if (this.#closed || brokers.length === 0) return;
    const listed = new Set(brokers.map(({ nodeId }) => nodeId));
    for (const [nodeId, node] of this.#nodes) {
      if (listed.has(nodeId)) continue;
      // Its connections may still carry an answer; nothing new is sent there.
      this.#left.add(node);
      this.#nodes.delete(nodeId);
    }
    for (const broker of brokers) {
      const known = this.#nodes.get(broker.nodeId);
      if (known?.address.host === broker.host && known.address.port === broker.port) continue;
      known?.close(new UnansweredError(`Broker ${broker.nodeId} has another address now`, false));
      this.#nodes.set(broker.nodeId, new Node(this.#builder, broker));
    }
    // The configured address was only needed to find the brokers.
    this.#replaceSeed();
  }

  /** The pool builder goes round the configured brokers, so the next one is another broker. */
  #replaceSeed(): void {
    const seed = this.#seed;
    this.#left.add(seed);
    void seed.retire().then(() => this.#left.delete(seed));
    if (!this.#closed) this.#seed = new Channel(this.#builder, undefined);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const reason = new KrabkaError("CLOSED", "The transport was closed");
    for (const each of [this.#seed, ...this.#nodes.values(), ...this.#left]) each.close(reason);
    this.#nodes.clear();
    this.#left.clear();
  }

  #refuseClosed(): void {
    if (this.#closed) throw new KrabkaError("CLOSED", "The transport was closed");
  }
}

/** @throws {KrabkaError} `UNSUPPORTED` when this is not the kafkajs that this file was written for. */
export const openWire = (kafka: Kafka | KafkaConfig, requestTimeoutMs: number): Wire =>
  new KafkaJsWire(poolBuilderOf(asKafka(kafka, requestTimeoutMs)));
