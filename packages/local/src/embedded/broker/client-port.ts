import { encodeUtf8 } from "@krabka/core";
import { LocalError } from "../../errors.js";
import type { BrokerPort, BrokerQuery, FeedSpec, PortListener, QueryResult } from "../link/port.js";
import type { EmbeddedBroker } from "./embedded-broker.js";
import type { PartitionLog } from "./partition-log.js";
import { concernsRole } from "./record-bytes.js";

type Fetch = Extract<BrokerQuery, { kind: "fetch" }>;

interface Feed {
  readonly log: PartitionLog;
  readonly role: Uint8Array;
  next: bigint;
  /** What was forgotten already when it began is nothing that it must be told. */
  forgotten: bigint;
  mustReset: boolean;
  readonly syncs: { readonly id: number; readonly end: bigint }[];
  readonly stop: () => void;
}

/** What one push carries at most, or a single record if that is larger. */
const SLICE_BYTES = 64 * 1024;
const FETCH_BYTES = 256 * 1024;

/**
 * A client's port at the broker itself. Feeds are cursors on the broker's records: a reader that takes nothing costs
 * nothing but its place, and one that comes back to a place that is gone starts over.
 */
export class ClientPort implements BrokerPort {
  readonly #broker: EmbeddedBroker;
  readonly #client: string;
  readonly #listener: PortListener;
  readonly #feeds = new Map<number, Feed>();
  readonly #waiting = new Map<number, () => void>();
  /** Fetches that wait until there is room for what they bring. */
  readonly #held = new Map<number, Fetch>();
  readonly #stopWatching: () => void;
  /** The position that the listener was told. */
  #told: bigint;
  #closed = false;

  constructor(broker: EmbeddedBroker, client: string, listener: PortListener) {
    this.#broker = broker;
    this.#client = client;
    this.#listener = listener;
    this.#told = broker.sighting.position;
    this.#stopWatching = broker.onEnd((error) => this.#lose(error));
  }

  request(sequence: bigint, acked: bigint, request: Uint8Array): void {
    this.#broker.submit(request, { client: this.#client, sequence, acked }).then(
      (answer) => {
        if (!this.#closed) this.#tell.onAnswer(sequence, answer);
      },
      (error: unknown) => this.#lose(error),
    );
  }

  query(id: number, query: BrokerQuery): void {
    if (query.kind === "fetch" && this.#listener.congested) {
      this.#held.set(id, query);
      return;
    }
    this.#answer(id, query).catch((error: unknown) => this.#lose(error));
  }

  cancel(id: number): void {
    this.#held.delete(id);
    this.#waiting.get(id)?.();
    this.#waiting.delete(id);
  }

  follow(id: number, { topic, partition, role }: FeedSpec, from: bigint): void {
    this.unfollow(id);
    const log = this.#broker.partition({ topic, partition });
    if (log === undefined) {
      this.#listener.onFeedEnded(id, `Topic ${JSON.stringify(topic)} has no partition ${partition}`);
      return;
    }
    const stop = this.#broker.onAdvance(log, () => this.#pump(id));
    const mustReset = log.hasGapAt(from);
    const next = mustReset ? 0n : from;
    const { forgottenBelow: forgotten } = log;
    this.#feeds.set(id, { log, role: encodeUtf8(role), next, forgotten, mustReset, syncs: [], stop });
    this.#pump(id);
  }

  sync(id: number, feedId: number): void {
    const feed = this.#feeds.get(feedId);
    if (feed === undefined) return;
    feed.syncs.push({ id, end: feed.log.visibleEnd });
    this.#pump(feedId);
  }

  unfollow(id: number): void {
    this.#feeds.get(id)?.stop();
    this.#feeds.delete(id);
  }

  /** Pushes what was held back while the listener was congested. */
  resume(): void {
    for (const id of this.#feeds.keys()) this.#pump(id);
    const held = [...this.#held];
    this.#held.clear();
    for (const [id, query] of held) this.query(id, query);
  }

  close(): void {
    this.#closed = true;
    this.#stopWatching();
    for (const { stop } of this.#feeds.values()) stop();
    this.#feeds.clear();
    for (const stop of this.#waiting.values()) stop();
    this.#waiting.clear();
    this.#held.clear();
  }

  #pump(id: number): void {
    const feed = this.#feeds.get(id);
    if (feed === undefined) return;
    while (!this.#closed && !this.#listener.congested) {
      // Retention may have overtaken a reader that was held back.
      if (feed.log.hasGapAt(feed.next, feed.forgotten)) {
        Object.assign(feed, { next: 0n, forgotten: feed.log.forgottenBelow, mustReset: true });
      }
      if (feed.next >= feed.log.visibleEnd && !feed.mustReset) break;
      const slice = feed.log.read(feed.next, SLICE_BYTES, (bytes) => concernsRole(bytes, feed.role));
      const reset = feed.mustReset;
      feed.next = slice.next;
      feed.mustReset = false;
      if (reset || slice.records.length > 0) this.#tell.onRecords(id, reset, slice);
    }
    while (feed.syncs[0] !== undefined && feed.syncs[0].end <= feed.next && !feed.mustReset) {
      const [{ id: sync, end }] = feed.syncs.splice(0, 1) as [Feed["syncs"][number]];
      this.#tell.onResult(sync, { kind: "end", end });
    }
  }

  async #answer(id: number, query: BrokerQuery): Promise<void> {
    const result = query.kind === "fetch" ? this.#fetch(id, query) : await this.#look(query);
    if (result !== undefined && !this.#closed) this.#tell.onResult(id, result);
  }

  async #look(query: Exclude<BrokerQuery, { kind: "fetch" }>): Promise<QueryResult> {
    if (query.kind === "describe") return { kind: "pair", pair: await this.#broker.describe(query.role) };
    const topic = await this.#broker.topic(query.topic);
    return topic === undefined
      ? { kind: "unknown-topic", message: `Topic ${JSON.stringify(query.topic)} does not exist` }
      : { kind: "topic", partitions: topic.partitions.length };
  }

  #fetch(id: number, query: Fetch): QueryResult | undefined {
    const { target, waits } = query;
    const log = this.#broker.partition(target);
    if (log === undefined) {
      const message = `Topic ${JSON.stringify(target.topic)} has no partition ${target.partition}`;
      return { kind: "unknown-topic", message };
    }
    const from = query.from === "earliest" ? log.start : query.from === "latest" ? log.visibleEnd : query.from;
    // Nothing is missing before the first record that is left, as long as nobody asked for an offset.
    if (typeof query.from === "bigint" && log.hasGapAt(from)) {
      return { kind: "gap", start: log.start, end: log.visibleEnd };
    }
    const slice = log.read(from, FETCH_BYTES);
    if (slice.records.length > 0 || !waits) return { kind: "slice", slice, end: log.visibleEnd };
    // From here on the offset is what counts, not the word for it.
    const stop = this.#broker.onAdvance(log, () => {
      this.cancel(id);
      this.query(id, { ...query, from: slice.next });
    });
    this.cancel(id);
    this.#waiting.set(id, stop);
    return undefined;
  }

  /** The listener, once it knows how far the log has come: what it hears next can't be from beyond that. */
  get #tell(): PortListener {
    const { position } = this.#broker.sighting;
    if (position !== this.#told) this.#listener.onDurable(position);
    this.#told = position;
    return this.#listener;
  }

  #lose(error: unknown): void {
    if (this.#closed) return;
    this.close();
    this.#listener.onLost(error instanceof Error ? error : new LocalError("FAILED", String(error)));
  }
}
