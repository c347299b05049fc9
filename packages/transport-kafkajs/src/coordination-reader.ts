import { setMaxListeners } from "node:events";
import {
  type CallOptions,
  type Deadline,
  type FeedListener,
  KrabkaError,
  type Role,
  type RoleFeed,
} from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import { LeaderPoller, type PollerOwner } from "./leader-poller.js";
import { type Follower, PartitionReader, type ReaderContext } from "./partition-reader.js";
import type { Decompress } from "./wire/record-batch.js";
import type { Wire } from "./wire-connection.js";

/** How long a topic may seem absent, since a broker can lag behind its creation. */
const ABSENT_FOR_MS = 3000;

/** Reads the coordination topic: one reader for each partition that somebody follows, one poller for each leader. */
export class CoordinationReader implements PollerOwner {
  readonly #wire: Wire;
  readonly #map: ClusterMap;
  readonly #topic: string;
  readonly #decompress: Decompress;
  readonly #readers = new Map<number, PartitionReader>();
  readonly #pollers = new Map<number, LeaderPoller>();
  readonly #closing = new AbortController();
  readonly #context: ReaderContext;

  constructor(wire: Wire, context: ReaderContext, topic: string, decompress: Decompress) {
    this.#wire = wire;
    this.#context = context;
    this.#map = context.map;
    this.#topic = topic;
    this.#decompress = decompress;
    // Each partition listens to it while its leader is looked up; Node takes more than ten for a leak.
    setMaxListeners(0, this.#closing.signal);
  }

  follow(role: Role, partition: number, listener: FeedListener): RoleFeed {
    let reader = this.#readers.get(partition);
    if (reader === undefined) {
      reader = new PartitionReader(this.#context, this.#topic, partition);
      this.#readers.set(partition, reader);
      void this.#locate(reader, false);
    }
    const follower: Follower = { role, listener, attached: false };
    reader.add(follower);
    return this.#feed(reader, follower);
  }

  findLeader(reader: PartitionReader, error: Error | undefined): void {
    if (error !== undefined) reader.trouble(error);
    void this.#locate(reader, true);
  }

  findStart(reader: PartitionReader): void {
    void this.#locate(reader, false, true);
  }

  close(): void {
    this.#closing.abort();
    const closed = new KrabkaError("CLOSED", "The transport was closed");
    for (const reader of this.#readers.values()) reader.end(closed);
    this.#readers.clear();
    this.#pollers.clear();
  }

  #feed(reader: PartitionReader, follower: Follower): RoleFeed {
    let closed = false;
    return {
      sync: async (options?: CallOptions) => {
        const deadline = this.#map.deadline(options);
        if (closed) throw new KrabkaError("CLOSED", "The feed was closed", { role: follower.role });
        const ended = reader.ended;
        if (ended !== undefined) throw ended;
        return reader.sync(deadline);
      },
      close: () => {
        if (closed) return;
        closed = true;
        reader.remove(follower);
        if (reader.isEmpty) this.#drop(reader);
      },
    };
  }

  #drop(reader: PartitionReader): void {
    if (this.#readers.get(reader.partition) === reader) this.#readers.delete(reader.partition);
    reader.end(new KrabkaError("CLOSED", "The feed was closed"));
    for (const poller of this.#pollers.values()) poller.remove(reader);
  }

  /** Finds the partition's leader and hands the reader to its poller; goes on until it did or reading ends. */
  async #locate(reader: PartitionReader, moved: boolean, findStart = false): Promise<void> {
    const signal = this.#closing.signal;
    const missingSinceMs = this.#map.clock.monotonicMs();
    let ask = moved;
    while (reader.ended === undefined && !signal.aborted) {
      const deadline = this.#map.deadline({ signal });
      try {
        if (ask) {
          await deadline.pause(reader.retry.next());
          this.#map.forgetTopic(this.#topic);
        }
        reader.leader = await this.#map.leaderOf(this.#topic, reader.partition, deadline);
        if (findStart) reader.startAt(await reader.logEnd("start", deadline));
        if (reader.ended === undefined && !signal.aborted) this.#pollerOf(reader.leader.nodeId).add(reader);
        return;
      } catch (thrown) {
        ask = true;
        if (signal.aborted) return;
        this.#troubled(reader, thrown, missingSinceMs, deadline);
      }
    }
  }

  #troubled(reader: PartitionReader, thrown: unknown, sinceMs: number, { clock }: Deadline): void {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    const code = KrabkaError.is(error) ? error.code : undefined;
    const absent = code === "UNKNOWN_TOPIC" && clock.monotonicMs() - sinceMs > ABSENT_FOR_MS;
    if (absent || code === "UNAUTHORIZED" || code === "INVALID_ARGUMENT" || code === "UNSUPPORTED") reader.end(error);
    else reader.trouble(error);
  }

  #pollerOf(nodeId: number): LeaderPoller {
    let poller = this.#pollers.get(nodeId);
    if (poller === undefined) {
      poller = new LeaderPoller(this.#wire, this.#map, this.#topic, nodeId, this.#decompress, this);
      this.#pollers.set(nodeId, poller);
    }
    return poller;
  }
}
