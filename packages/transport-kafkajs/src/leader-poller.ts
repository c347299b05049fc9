import type { ClusterMap } from "./cluster-map.js";
import { NONE } from "./error-codes.js";
import type { PartitionReader, ReadMode, Verdict } from "./partition-reader.js";
import { FETCH } from "./wire/api.js";
import { decodeFetch, encodeFetch, type FetchAnswer } from "./wire/log-requests.js";
import { type Decompress, decodeBatches } from "./wire/record-batch.js";
import type { Lane, Wire } from "./wire-connection.js";

/** How long a leader holds a fetch that finds nothing new. */
const POLL_WAIT_MS = 1000;
/** How long a partition that came while a poll was in flight waits at a time, beside that poll. */
const BESIDE_WAIT_MS = 20;
/** How much longer than it may be held an answer may take. */
const ANSWER_GRACE_MS = 2000;
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * What a member sends because of what was just read goes out before the next poll does: a standby's takeover waits for the
 * former, and each write to a socket takes its time.
 */
const afterReactions = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** What is asked of the owner of a partition when an answer says so. */
export interface PollerOwner {
  /** The partition left this leader, or its leader does not answer. */
  findLeader(reader: PartitionReader, error: Error | undefined): void;
  /** The position lies outside of the log. */
  findStart(reader: PartitionReader): void;
}

/**
 * Fetches all partitions of one leader: those that are up to date in one long poll on a connection of its own; those that
 * catch up, or came while a poll was in flight, beside it.
 */
export class LeaderPoller {
  readonly #wire: Wire;
  readonly #map: ClusterMap;
  readonly #nodeId: number;
  readonly #topic: string;
  readonly #decompress: Decompress;
  readonly #owner: PollerOwner;
  readonly #idle = new Set<PartitionReader>();
  readonly #busy = new Set<PartitionReader>();
  #loop: "stopped" | "between-polls" | "polling" = "stopped";
  #beside: Promise<void> | undefined;
  /** The read beside the poll of partitions that are up to date; at most {@link BESIDE_WAIT_MS} long. */
  #joining: Promise<void> | undefined;

  constructor(wire: Wire, map: ClusterMap, topic: string, nodeId: number, decompress: Decompress, owner: PollerOwner) {
    this.#wire = wire;
    this.#map = map;
    this.#topic = topic;
    this.#nodeId = nodeId;
    this.#decompress = decompress;
    this.#owner = owner;
  }

  add(reader: PartitionReader): void {
    this.#idle.add(reader);
    this.#run();
  }

  remove(reader: PartitionReader): void {
    this.#idle.delete(reader);
    this.#busy.delete(reader);
  }

  #run(): void {
    if (this.#loop === "stopped" && this.#take("live").length > 0) void this.#poll();
    if (this.#beside === undefined && this.#needsBeside()) {
      this.#beside = this.#readBeside().finally(() => {
        this.#beside = undefined;
        this.#run();
      });
    }
  }

  #needsBeside(): boolean {
    return this.#take("replaying").length > 0 || (this.#loop === "polling" && this.#take("live").length > 0);
  }

  #take(mode: ReadMode): PartitionReader[] {
    return [...this.#idle].filter((reader) => reader.mode === mode);
  }

  async #poll(): Promise<void> {
    this.#loop = "between-polls";
    for (;;) {
      await afterReactions();
      // Those that are read beside the poll join the next one.
      await this.#joining;
      const readers = this.#take("live");
      if (readers.length === 0) break;
      this.#loop = "polling";
      await this.#fetch(readers, "live", "poll", POLL_WAIT_MS);
      this.#loop = "between-polls";
    }
    this.#loop = "stopped";
    this.#run();
  }

  async #readBeside(): Promise<void> {
    while (this.#needsBeside()) {
      const replaying = this.#take("replaying");
      if (replaying.length > 0) await this.#fetch(replaying, "replaying", "replay", 0);
      else {
        this.#joining = this.#fetch(this.#take("live"), "live", "replay", BESIDE_WAIT_MS);
        await this.#joining;
        this.#joining = undefined;
      }
    }
  }

  /** One request; never rejects. The readers are busy meanwhile, so nothing is read twice. */
  async #fetch(readers: readonly PartitionReader[], mode: ReadMode, lane: Lane, maxWaitMs: number): Promise<void> {
    for (const reader of readers) {
      this.#idle.delete(reader);
      this.#busy.add(reader);
    }
    try {
      const answer = await this.#ask(readers, mode, lane, maxWaitMs);
      if (answer.code !== NONE) throw new Error(`The fetch was answered with code ${answer.code}`);
      for (const fetched of answer.partitions) {
        const batches = await decodeBatches(fetched.records, this.#decompress);
        const reader = readers.find(({ partition }) => partition === fetched.partition);
        if (reader === undefined || !this.#busy.has(reader)) continue;
        this.#follow(reader, reader.accept(fetched, batches, mode));
      }
      for (const reader of readers) this.#giveUp(reader, new Error("The answer lacks the partition"));
    } catch (thrown) {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      for (const reader of readers) this.#giveUp(reader, error);
    }
  }

  #giveUp(reader: PartitionReader, error: Error): void {
    if (this.#busy.delete(reader)) this.#owner.findLeader(reader, error);
  }

  async #ask(readers: readonly PartitionReader[], mode: ReadMode, lane: Lane, maxWaitMs: number): Promise<FetchAnswer> {
    const partitions = readers.map((reader) => ({
      partition: reader.partition,
      leaderEpoch: reader.leader?.leaderEpoch ?? -1,
      fetchOffset: reader.position,
      lastFetchedEpoch: reader.lastEpoch,
    }));
    const committedOnly = mode === "replaying";
    const answer = await this.#wire.request(this.#nodeId, lane, {
      api: FETCH,
      encode: () => encodeFetch({ topic: this.#topic, partitions, maxWaitMs, committedOnly, maxBytes: MAX_BYTES }),
      timeoutMs: maxWaitMs + Math.min(ANSWER_GRACE_MS, this.#map.requestTimeoutMs),
    });
    return decodeFetch(answer);
  }

  #follow(reader: PartitionReader, verdict: Verdict): void {
    this.#busy.delete(reader);
    switch (verdict) {
      case "go-on":
        this.#idle.add(reader);
        break;
      case "find-leader":
        this.#owner.findLeader(reader, undefined);
        break;
      case "find-start":
        this.#owner.findStart(reader);
        break;
      case "ended":
        break;
    }
  }
}
