import type { KrabkaError } from "@krabka/core";
import type { Slice } from "../broker/partition-log.js";
import type { BrokerPort, FeedSpec } from "./port.js";

/** Takes what a feed reads. */
export interface FeedSink {
  onRecords(slice: Slice): void;
  onReset(): void;
  /** It reads nothing that exists, or the client ended; nothing follows. */
  onEnded(error: KrabkaError): void;
  /** Reading stopped for now. */
  onInterrupted(error: KrabkaError): void;
}

interface Feed {
  readonly spec: FeedSpec;
  readonly sink: FeedSink;
  /** Where to read on after an interruption. */
  next: bigint;
  /** The way on which it is followed. */
  port: BrokerPort | undefined;
}

/** The feeds of one client, each with its place: on a new way it reads on from there. */
export class FeedLedger {
  readonly #feeds = new Map<number, Feed>();

  add(id: number, spec: FeedSpec, sink: FeedSink): void {
    this.#feeds.set(id, { spec, sink, next: 0n, port: undefined });
  }

  /** @returns whether it was there */
  remove(id: number): boolean {
    return this.#feeds.delete(id);
  }

  /** Follows it on this way, unless that was done. */
  follow(id: number, port: BrokerPort): void {
    const feed = this.#feeds.get(id);
    if (feed === undefined || feed.port === port) return;
    feed.port = port;
    port.follow(id, feed.spec, feed.next);
  }

  followAll(port: BrokerPort): void {
    for (const id of [...this.#feeds.keys()]) this.follow(id, port);
  }

  read(id: number, reset: boolean, slice: Slice): void {
    const feed = this.#feeds.get(id);
    if (feed === undefined) return;
    if (reset) feed.sink.onReset();
    feed.next = slice.next;
    if (slice.records.length > 0) feed.sink.onRecords(slice);
  }

  /** It has read everything before `end`. */
  reached(id: number, end: bigint): void {
    const feed = this.#feeds.get(id);
    if (feed !== undefined && feed.next < end) feed.next = end;
  }

  interrupted(error: KrabkaError): void {
    for (const { sink } of [...this.#feeds.values()]) sink.onInterrupted(error);
  }

  ended(id: number, error: KrabkaError): void {
    const feed = this.#feeds.get(id);
    this.#feeds.delete(id);
    feed?.sink.onEnded(error);
  }

  endAll(error: KrabkaError): void {
    for (const id of [...this.#feeds.keys()]) this.ended(id, error);
  }
}
