import { randomBytes } from "node:crypto";
import { type Clock, KrabkaError, type Timer } from "@krabka/core";
import { LocalError } from "../../errors.js";
import type { Sighting } from "../broker/openings.js";
import type { Slice } from "../broker/partition-log.js";
import type { BrokerAnswer, BrokerRequest } from "../broker/request.js";
import type { CallLimit } from "./call-limit.js";
import type { PendingRequest } from "./pending-request.js";
import type { BrokerPort, BrokerQuery, Connector, FeedSpec, PortListener, QueryResult } from "./port.js";
import { RequestLedger } from "./request-ledger.js";

/** Takes what a feed reads. */
export interface FeedSink {
  onRecords(slice: Slice): void;
  onReset(): void;
  /** It reads nothing that exists, or the client ended; nothing follows. */
  onEnded(error: KrabkaError): void;
  /** Reading stopped for now. */
  onInterrupted(error: KrabkaError): void;
}

export interface ClientFeed {
  sync(limit: CallLimit): Promise<bigint>;
  close(): void;
}

interface Feed {
  readonly spec: FeedSpec;
  readonly sink: FeedSink;
  /** Where to read on after an interruption. */
  next: bigint;
  /** The way on which it is followed. */
  port: BrokerPort | undefined;
}

interface PendingQuery {
  readonly send: (port: BrokerPort) => void;
  /** The way on which it was asked. */
  port: BrokerPort | undefined;
  readonly feed: number | undefined;
  readonly resolve: (result: QueryResult) => void;
  readonly reject: (error: Error) => void;
}

const FIRST_RETRY_MS = 5;
const LAST_RETRY_MS = 500;

/**
 * One client of a broker, over whatever way there is at the moment. When the way gets lost it finds another one, sends again
 * what was not answered, under the same ids, and goes on reading where it was.
 */
export class BrokerClient {
  readonly #connector: Connector;
  readonly #clock: Clock;
  readonly #id = randomBytes(16).toString("hex");
  readonly #requests = new RequestLedger();
  readonly #queries = new Map<number, PendingQuery>();
  readonly #feeds = new Map<number, Feed>();
  readonly #waiters = new Set<{ readonly resolve: () => void; readonly reject: (error: Error) => void }>();
  #nextId = 1;
  #port: BrokerPort | undefined;
  /** What this client knows of the log. A log that does not continue it is none of its own. */
  #seen: Sighting | undefined;
  #maxRequestBytes = Number.POSITIVE_INFINITY;
  /** Why there is no way at present. */
  #trouble: unknown;
  #retry: Timer | undefined;
  #retryMs = FIRST_RETRY_MS;
  #connecting: Promise<void> = Promise.resolve();
  #closed: KrabkaError | undefined;

  constructor(connector: Connector, clock: Clock) {
    this.#connector = connector;
    this.#clock = clock;
    this.#connect();
  }

  get isConnected(): boolean {
    return this.#port !== undefined;
  }

  get maxRequestBytes(): number {
    return this.#maxRequestBytes;
  }

  /** Resolves when there is a way to the broker. @throws {KrabkaError} `UNREACHABLE`, or why there can't be one */
  async ready(limit: CallLimit): Promise<void> {
    this.#refuseClosed();
    if (this.#port !== undefined) return limit.check();
    this.#refuseHopeless();
    const waiter = { resolve: (): void => undefined, reject: (_: Error): void => undefined };
    const connected = new Promise<void>((resolve, reject) => Object.assign(waiter, { resolve, reject }));
    this.#waiters.add(waiter);
    try {
      await limit.race(connected);
    } catch (error) {
      throw this.explain(error);
    } finally {
      this.#waiters.delete(waiter);
    }
  }

  /** Sends a request, now or as soon as there is a way, and again when an answer was lost. */
  send(request: BrokerRequest): PendingRequest {
    this.#refuseClosed();
    this.#refuseHopeless();
    const pending = this.#requests.add(request);
    if (this.#port !== undefined) this.#requests.send(pending, this.#port);
    return pending;
  }

  /**
   * Sends a request once, now. A lost answer is not asked for again.
   *
   * @throws {KrabkaError} `UNREACHABLE` when there is no way at this very moment
   */
  sendOnce(request: BrokerRequest): PendingRequest {
    this.#refuseClosed();
    if (this.#port === undefined) throw this.#unreachable();
    const pending = this.send(request);
    this.#requests.sendOnly(pending);
    return pending;
  }

  async query(query: BrokerQuery, limit: CallLimit): Promise<QueryResult> {
    return this.#ask((port, id) => port.query(id, query), undefined, limit);
  }

  follow(spec: FeedSpec, sink: FeedSink): ClientFeed {
    this.#refuseClosed();
    const id = this.#nextId++;
    this.#feeds.set(id, { spec, sink, next: 0n, port: undefined });
    // Not before the caller has what this call returns.
    queueMicrotask(() => this.#followOn(id));
    return {
      sync: async (limit) => {
        const result = await this.#ask((port, query) => port.sync(query, id), id, limit);
        if (result.kind !== "end") throw new KrabkaError("UNREACHABLE", `The broker answered ${result.kind} to a sync`);
        const feed = this.#feeds.get(id);
        if (feed !== undefined && feed.next < result.end) feed.next = result.end;
        return result.end;
      },
      close: () => {
        if (!this.#feeds.delete(id)) return;
        this.#port?.unfollow(id);
        this.#endQueries(id, new KrabkaError("CLOSED", "The feed was closed"));
      },
    };
  }

  /** A time limit that passed without any way to the broker means that it can't be reached. */
  explain(error: unknown): unknown {
    const timedOut = KrabkaError.is(error) && error.code === "TIMEOUT";
    return timedOut && this.#port === undefined ? this.#unreachable() : error;
  }

  async close(): Promise<void> {
    this.#end(new KrabkaError("CLOSED", "The transport was closed"));
    await Promise.all([this.#connector.close(), this.#connecting]);
  }

  #end(closed: KrabkaError): void {
    if (this.#closed !== undefined) return;
    this.#closed = closed;
    this.#retry?.cancel();
    this.#port?.close();
    this.#port = undefined;
    this.#requests.close(closed);
    for (const { reject } of [...this.#queries.values(), ...this.#waiters]) reject(closed);
    for (const { sink } of [...this.#feeds.values()]) sink.onEnded(closed);
    this.#feeds.clear();
  }

  async #ask(
    send: (port: BrokerPort, id: number) => void,
    feed: number | undefined,
    limit: CallLimit,
  ): Promise<QueryResult> {
    this.#refuseClosed();
    limit.check();
    this.#refuseHopeless();
    const id = this.#nextId++;
    const result = new Promise<QueryResult>((resolve, reject) => {
      this.#queries.set(id, { send: (port) => send(port, id), port: undefined, feed, resolve, reject });
    });
    // A feed that was just opened is followed in a microtask; its syncs come behind.
    queueMicrotask(() => this.#askOn(id));
    try {
      return await limit.race(result);
    } catch (error) {
      this.#port?.cancel(id);
      throw this.explain(error);
    } finally {
      this.#queries.delete(id);
    }
  }

  #followOn(id: number): void {
    const feed = this.#feeds.get(id);
    const port = this.#port;
    if (feed === undefined || port === undefined || feed.port === port) return;
    feed.port = port;
    port.follow(id, feed.spec, feed.next);
  }

  #askOn(id: number): void {
    const query = this.#queries.get(id);
    const port = this.#port;
    if (query === undefined || port === undefined || query.port === port) return;
    query.port = port;
    query.send(port);
  }

  #connect(): void {
    this.#connecting = this.#open().catch((error: unknown) => {
      if (this.#closed !== undefined) return;
      if (KrabkaError.is(error) && error.code === "CLOSED") return this.#end(error);
      this.#failed(error);
      this.#retry = this.#clock.setTimer(this.#retryMs, () => this.#connect());
      this.#retryMs = Math.min(LAST_RETRY_MS, this.#retryMs * 2);
    });
  }

  async #open(): Promise<void> {
    const listener = this.#listen();
    const opened = await this.#connector.connect(this.#id, this.#seen, listener);
    if (this.#closed !== undefined) return opened.port.close();
    if (listener.lost !== undefined) throw listener.lost;
    listener.port = opened.port;
    this.#maxRequestBytes = opened.maxRequestBytes;
    this.#seen = opened.sighting;
    this.#attach(opened.port, opened.isKnown);
  }

  /** Everything from an earlier way is ignored once another one is in use. */
  #listen(): PortListener & { port: BrokerPort | undefined; lost: Error | undefined } {
    const isCurrent = (): boolean => listener.port !== undefined && listener.port === this.#port;
    const listener: PortListener & { port: BrokerPort | undefined; lost: Error | undefined } = {
      port: undefined,
      lost: undefined,
      congested: false,
      onDurable: (position) => {
        if (isCurrent() && this.#seen !== undefined) this.#seen = { ...this.#seen, position };
      },
      onAnswer: (sequence, answer) => {
        if (isCurrent()) this.#answered(sequence, answer);
      },
      onResult: (id, result) => {
        if (isCurrent()) this.#queries.get(id)?.resolve(result);
      },
      onRecords: (id, reset, slice) => {
        const feed = isCurrent() ? this.#feeds.get(id) : undefined;
        if (feed === undefined) return;
        if (reset) feed.sink.onReset();
        feed.next = slice.next;
        if (slice.records.length > 0) feed.sink.onRecords(slice);
      },
      onFeedEnded: (id, message) => {
        const feed = isCurrent() ? this.#feeds.get(id) : undefined;
        if (feed === undefined) return;
        const error = new KrabkaError("UNKNOWN_TOPIC", message);
        this.#feeds.delete(id);
        this.#endQueries(id, error);
        feed.sink.onEnded(error);
      },
      onLost: (error) => {
        listener.lost = error;
        if (isCurrent()) this.#lost(error);
      },
    };
    return listener;
  }

  #answered(sequence: bigint, answer: BrokerAnswer): void {
    if (answer.status === "refused" && answer.reason === "unknown-client") {
      // Registers anew. Answers come in order, so whatever has none by now was not taken either.
      this.#requests.notTaken();
      const port = this.#port;
      this.#lost(new Error(answer.message));
      port?.close();
      return;
    }
    this.#requests.answered(sequence, answer);
  }

  #attach(port: BrokerPort, isKnown: boolean): void {
    this.#port = port;
    this.#trouble = undefined;
    this.#retryMs = FIRST_RETRY_MS;
    for (const id of [...this.#feeds.keys()]) this.#followOn(id);
    this.#requests.resend(port, isKnown);
    for (const id of [...this.#queries.keys()]) this.#askOn(id);
    for (const { resolve } of [...this.#waiters]) resolve();
  }

  #lost(error: Error): void {
    this.#port = undefined;
    this.#trouble = error;
    this.#requests.interrupted(error);
    for (const { sink } of [...this.#feeds.values()]) sink.onInterrupted(this.#unreachable());
    if (this.#closed === undefined) this.#connect();
  }

  #failed(error: unknown): void {
    this.#trouble = error;
    if (!isHopeless(error)) return;
    for (const { reject } of [...this.#waiters, ...this.#queries.values()]) reject(error);
    this.#requests.refuseUnsent(error);
  }

  #endQueries(feed: number, error: Error): void {
    for (const query of [...this.#queries.values()]) if (query.feed === feed) query.reject(error);
  }

  #unreachable(): KrabkaError {
    const cause = this.#trouble;
    const why = cause instanceof Error ? `: ${cause.message}` : "";
    return new KrabkaError("UNREACHABLE", `${this.#connector.where} can't be reached${why}`, { cause });
  }

  #refuseClosed(): void {
    if (this.#closed !== undefined) throw this.#closed;
  }

  /** @throws {KrabkaError} what only people can put right; it is tried again all the same, but nobody is kept waiting */
  #refuseHopeless(): void {
    if (this.#port === undefined && isHopeless(this.#trouble)) throw this.#trouble;
  }
}

const isHopeless = (error: unknown): error is KrabkaError =>
  KrabkaError.is(error) &&
  (error.code !== "UNREACHABLE" || (LocalError.is(error.cause) && error.cause.code === "DAMAGED"));
