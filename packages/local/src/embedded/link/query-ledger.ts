import type { BrokerPort, QueryResult } from "./port.js";

interface PendingQuery {
  readonly send: (port: BrokerPort) => void;
  /** The way on which it was asked. */
  port: BrokerPort | undefined;
  /** The feed that it is about. */
  readonly feed: number | undefined;
  readonly resolve: (result: QueryResult) => void;
  readonly reject: (error: Error) => void;
}

/** The questions of one client that have no answer yet. They change nothing, so they are asked again on each new way. */
export class QueryLedger {
  readonly #queries = new Map<number, PendingQuery>();

  add(id: number, send: (port: BrokerPort) => void, feed: number | undefined): Promise<QueryResult> {
    return new Promise((resolve, reject) => {
      this.#queries.set(id, { send, port: undefined, feed, resolve, reject });
    });
  }

  /** Asks it on this way, unless that was done. */
  send(id: number, port: BrokerPort): void {
    const query = this.#queries.get(id);
    if (query === undefined || query.port === port) return;
    query.port = port;
    query.send(port);
  }

  resend(port: BrokerPort): void {
    for (const id of [...this.#queries.keys()]) this.send(id, port);
  }

  answered(id: number, result: QueryResult): void {
    this.#queries.get(id)?.resolve(result);
  }

  forget(id: number): void {
    this.#queries.delete(id);
  }

  endOfFeed(feed: number, error: Error): void {
    for (const query of [...this.#queries.values()]) if (query.feed === feed) query.reject(error);
  }

  refuse(error: Error): void {
    for (const { reject } of [...this.#queries.values()]) reject(error);
  }
}
