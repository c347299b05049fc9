import { randomBytes } from "node:crypto";
import { type Clock, type Deadline, KrabkaError, type Timer } from "@krabka/core";
import { LocalError } from "../../errors.js";
import type { Sighting } from "../broker/openings.js";
import type { BrokerAnswer, BrokerRequest } from "../broker/request.js";
import { FeedLedger, type FeedSink } from "./feed-ledger.js";
import type { PendingRequest } from "./pending-request.js";
import type { BrokerPort, BrokerQuery, Connector, FeedSpec, PortListener, QueryResult } from "./port.js";
import { QueryLedger } from "./query-ledger.js";
import { RequestLedger } from "./request-ledger.js";

export interface ClientFeed {
  sync(limit: Deadline): Promise<bigint>;
  close(): void;
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
  readonly #queries = new QueryLedger();
  readonly #feeds = new FeedLedger();
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
  async ready(limit: Deadline): Promise<void> {
    this.#refuseClosed();
    if (this.#port !== undefined) return limit.throwIfEnded();
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

  async query(query: BrokerQuery, limit: Deadline): Promise<QueryResult> {
    return this.#ask((port, id) => port.query(id, query), undefined, limit);
  }

  follow(spec: FeedSpec, sink: FeedSink): ClientFeed {
    this.#refuseClosed();
    const id = this.#nextId++;
    this.#feeds.add(id, spec, sink);
    // Not before the caller has what this call returns.
    queueMicrotask(() => {
      if (this.#port !== undefined) this.#feeds.follow(id, this.#port);
    });
    return {
      sync: async (limit) => {
        const result = await this.#ask((port, query) => port.sync(query, id), id, limit);
        if (result.kind !== "end") throw new KrabkaError("UNREACHABLE", `The broker answered ${result.kind} to a sync`);
        this.#feeds.reached(id, result.end);
        return result.end;
      },
      close: () => {
        if (!this.#feeds.remove(id)) return;
        this.#port?.unfollow(id);
        this.#queries.endOfFeed(id, new KrabkaError("CLOSED", "The feed was closed"));
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
    this.#queries.refuse(closed);
    for (const { reject } of [...this.#waiters]) reject(closed);
    this.#feeds.endAll(closed);
  }

  async #ask(
    send: (port: BrokerPort, id: number) => void,
    feed: number | undefined,
    limit: Deadline,
  ): Promise<QueryResult> {
    this.#refuseClosed();
    limit.throwIfEnded();
    this.#refuseHopeless();
    const id = this.#nextId++;
    const result = this.#queries.add(id, (port) => send(port, id), feed);
    // A feed that was just opened is followed in a microtask; its syncs come behind.
    queueMicrotask(() => {
      if (this.#port !== undefined) this.#queries.send(id, this.#port);
    });
    try {
      return await limit.race(result);
    } catch (error) {
      this.#port?.cancel(id);
      throw this.explain(error);
    } finally {
      this.#queries.forget(id);
    }
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
        if (isCurrent()) this.#queries.answered(id, result);
      },
      onRecords: (id, reset, slice) => {
        if (isCurrent()) this.#feeds.read(id, reset, slice);
      },
      onFeedEnded: (id, message) => {
        if (!isCurrent()) return;
        const error = new KrabkaError("UNKNOWN_TOPIC", message);
        this.#queries.endOfFeed(id, error);
        this.#feeds.ended(id, error);
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
    this.#feeds.followAll(port);
    this.#requests.resend(port, isKnown);
    this.#queries.resend(port);
    for (const { resolve } of [...this.#waiters]) resolve();
  }

  #lost(error: Error): void {
    this.#port = undefined;
    this.#trouble = error;
    this.#requests.interrupted(error);
    this.#feeds.interrupted(this.#unreachable());
    if (this.#closed === undefined) this.#connect();
  }

  #failed(error: unknown): void {
    this.#trouble = error;
    if (!isHopeless(error)) return;
    for (const { reject } of [...this.#waiters]) reject(error);
    this.#queries.refuse(error);
    this.#requests.refuseUnsent(error);
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
