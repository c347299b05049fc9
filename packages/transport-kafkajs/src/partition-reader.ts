import {
  Backoff,
  type CoordinationRecord,
  type Deadline,
  type FeedListener,
  KrabkaError,
  type Role,
} from "@krabka/core";
import type { ClusterMap, Leader } from "./cluster-map.js";
import { errorOf, meaningOf, NONE, OFFSET_OUT_OF_RANGE, onTopic } from "./error-codes.js";
import { type Applied, groupByRole, type Malformed, PartitionView } from "./partition-view.js";
import { LIST_OFFSETS } from "./wire/api.js";
import { decodeListOffsets, encodeListOffsets, type FetchedPartition, type LogEnd } from "./wire/log-requests.js";
import type { FetchedBatch } from "./wire/record-batch.js";
import { UnansweredError } from "./wire-connection.js";

export interface ReaderContext {
  readonly map: ClusterMap;
  /** Longest pause in reading after which tombstones can't have been cleaned away unread. */
  readonly staleAfterMs: () => number;
  readonly warn: (message: string, error: unknown) => void;
}

/** One feed of a role. */
export interface Follower {
  readonly role: Role;
  readonly listener: FeedListener;
  /** Set once the feed got what was read before it came. */
  attached: boolean;
}

/**
 * - `replaying`: below the last stable offset, by committed reads.
 * - `live`: from there on, by uncommitted reads and markers.
 */
export type ReadMode = "replaying" | "live";

/** What the reader wants after an answer. */
export type Verdict = "go-on" | "find-leader" | "find-start" | "ended";

interface EndWaiter {
  readonly end: bigint;
  readonly resolve: (end: bigint) => void;
  readonly reject: (error: Error) => void;
}

/** How long a question that several callers share is repeated; each caller leaves at its own limit. */
const SHARED_QUESTION_MS = 60_000;
/** Trouble that passes sooner is not reported. */
const REPORT_AFTER_MS = 300;
/** How many malformed records are remembered for feeds that come later. */
const REMEMBERED_MALFORMED = 1000;

/**
 * Reads one partition for all roles in it. It holds the state; fetching is the leader poller's.
 */
export class PartitionReader {
  readonly topic: string;
  readonly partition: number;
  readonly #map: ClusterMap;
  readonly #context: ReaderContext;
  readonly #followers = new Set<Follower>();
  readonly #waiters = new Set<EndWaiter>();
  #view = new PartitionView();
  #malformed: Malformed[] = [];
  #mode: ReadMode = "replaying";
  #logStart = -1n;
  #readAt: { readonly wallMs: number; readonly monotonicMs: number } | undefined;
  #failingSinceMs: number | undefined;
  #reported = false;
  #ended: Error | undefined;
  #askingEnd: Promise<bigint> | undefined;
  readonly #closing = new AbortController();
  leader: Leader | undefined;
  /** Grows from failure to failure, until an answer comes. */
  readonly retry = new Backoff(5, 250);

  constructor(context: ReaderContext, topic: string, partition: number) {
    this.#context = context;
    this.#map = context.map;
    this.topic = topic;
    this.partition = partition;
  }

  get mode(): ReadMode {
    return this.#mode;
  }

  get position(): bigint {
    return this.#view.position;
  }

  get lastEpoch(): number {
    return this.#view.lastEpoch;
  }

  get isEmpty(): boolean {
    return this.#followers.size === 0;
  }

  get ended(): Error | undefined {
    return this.#ended;
  }

  add(follower: Follower): void {
    this.#followers.add(follower);
    queueMicrotask(() => this.#attach(follower));
  }

  remove(follower: Follower): void {
    this.#followers.delete(follower);
  }

  /** Resolves once everything before the log's end, asked for after this call, was given to the followers. */
  async sync(deadline: Deadline): Promise<bigint> {
    this.#askingEnd ??= Promise.resolve().then(() => {
      // Callers of the same tick share the question; one asked earlier would not be "after the call".
      this.#askingEnd = undefined;
      return this.logEnd("end", this.#map.deadline({ timeoutMs: SHARED_QUESTION_MS, signal: this.#closing.signal }));
    });
    const end = await deadline.race(this.#askingEnd).catch((error: unknown) => {
      // The end of reading aborts the question.
      throw this.#ended ?? error;
    });
    if (this.#ended !== undefined) throw this.#ended;
    if (this.position >= end) return end;
    let waiter: EndWaiter | undefined;
    const reached = new Promise<bigint>((resolve, reject) => {
      waiter = { end, resolve, reject };
      this.#waiters.add(waiter);
    });
    try {
      return await deadline.race(reached);
    } finally {
      if (waiter !== undefined) this.#waiters.delete(waiter);
    }
  }

  /** The log's end (its high watermark) or start, from the leader. */
  async logEnd(end: LogEnd, deadline: Deadline): Promise<bigint> {
    const backoff = new Backoff(5, 100);
    const what = `Asking for the ${end} of ${this.topic}-${this.partition}`;
    let last: Error | undefined;
    for (;;) {
      try {
        const { nodeId, leaderEpoch } = await this.#map.leaderOf(this.topic, this.partition, deadline);
        const encode = (): Buffer => encodeListOffsets(this.topic, this.partition, leaderEpoch, end);
        const answer = decodeListOffsets(await this.#map.ask(nodeId, "write", { api: LIST_OFFSETS, encode }, deadline));
        const { code, offset } = answer[0] ?? { code: -1, offset: -1n };
        if (code === NONE) return offset;
        last = errorOf(code, what, { right: onTopic("Read", this.topic) });
        if (meaningOf(code) === "refused" && code !== 3) throw last;
      } catch (error) {
        if (error === last) throw error;
        if (!(error instanceof UnansweredError)) throw error;
        last = new KrabkaError("UNREACHABLE", `${what}: no answer`, { cause: error });
      }
      this.#map.forgetTopic(this.topic);
      const delayMs = backoff.next();
      if (deadline.remainingMs <= delayMs && deadline.ended?.code !== "ABORTED") throw last;
      await deadline.pause(delayMs);
    }
  }

  /** Takes an answer to a fetch from `position`. */
  accept(fetched: FetchedPartition, batches: readonly FetchedBatch[], mode: ReadMode): Verdict {
    if (this.#ended !== undefined) return "ended";
    if (fetched.code === OFFSET_OUT_OF_RANGE) {
      this.restart();
      return "find-start";
    }
    if (fetched.code !== NONE) return this.#refused(fetched.code);
    if (fetched.diverges || this.#isStale() || this.#logStartMoved(fetched.logStartOffset)) {
      this.restart();
      this.#logStart = fetched.logStartOffset;
      return fetched.logStartOffset > 0n ? "find-start" : "go-on";
    }
    this.#failingSinceMs = undefined;
    this.#reported = false;
    this.retry.reset();
    this.#readAt = this.#now();
    const applied =
      mode === "replaying" ? this.#view.applyDecided(batches, fetched.aborted) : this.#view.applyLive(batches);
    if (mode === "live" && this.#view.missedMarker(fetched.lastStableOffset)) {
      this.restart();
      return "go-on";
    }
    // At the last stable offset no transaction from before is open, so markers tell the rest.
    if (mode === "replaying" && this.position >= fetched.lastStableOffset) this.#mode = "live";
    this.#give(applied);
    this.#release();
    return "go-on";
  }

  /** Starts over: the place in the log was lost, or the log has another history. */
  restart(): void {
    const reset = this.#view.position > 0n;
    this.#view = new PartitionView();
    this.#malformed = [];
    this.#mode = "replaying";
    this.#readAt = undefined;
    if (reset) this.#each((listener) => listener.onReset());
  }

  /** Goes to the log's start after the broker said that the position is outside of the log. */
  startAt(offset: bigint): void {
    if (this.#mode === "replaying" && this.#view.position < offset) this.#view.position = offset;
    this.#logStart = offset;
    this.#release();
  }

  /** Tells the followers once per stretch of trouble that lasts; a leader that moves is no trouble. */
  trouble(error: Error): void {
    const nowMs = this.#map.clock.monotonicMs();
    this.#failingSinceMs ??= nowMs;
    if (this.#reported || this.#ended !== undefined || nowMs - this.#failingSinceMs < REPORT_AFTER_MS) return;
    this.#reported = true;
    this.#context.warn(`Reading ${this.topic}-${this.partition} fails and is retried`, error);
    this.#each((listener) => listener.onError(error));
  }

  /** Ends reading for good. */
  end(error: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#closing.abort(error);
    for (const waiter of this.#waiters) waiter.reject(error);
    this.#waiters.clear();
    if (!(KrabkaError.is(error) && error.code === "CLOSED")) this.#each((listener) => listener.onError(error));
  }

  #refused(code: number): Verdict {
    const error = errorOf(code, `Reading ${this.topic}-${this.partition}`, { right: onTopic("Read", this.topic) });
    if (error.code === "UNAUTHORIZED") {
      this.end(error);
      return "ended";
    }
    this.trouble(error);
    return "find-leader";
  }

  #attach(follower: Follower): void {
    if (!this.#followers.has(follower)) return;
    follower.attached = true;
    const records = this.#view.recordsOf(follower.role);
    if (records.length > 0) this.#call(follower, (listener) => listener.onRecords(records));
    const uncommitted = this.#view.uncommittedOf(follower.role);
    if (uncommitted.length > 0) this.#call(follower, (listener) => listener.onUncommitted(uncommitted));
    for (const { offset, error } of this.#malformed) {
      this.#call(follower, (listener) => listener.onMalformed(offset, error));
    }
    const ended = this.#ended;
    if (ended !== undefined) this.#call(follower, (listener) => listener.onError(ended));
  }

  #give({ committed, uncommitted, malformed }: Applied): void {
    for (const entry of malformed) {
      if (this.#malformed.length < REMEMBERED_MALFORMED) this.#malformed.push(entry);
      this.#each((listener) => listener.onMalformed(entry.offset, entry.error));
    }
    if (committed.length + uncommitted.length === 0) return;
    const definite = groupByRole(committed);
    const open = groupByRole(uncommitted);
    const give = (records: CoordinationRecord[] | undefined, to: (records: CoordinationRecord[]) => void): void => {
      if (records !== undefined) to(records);
    };
    this.#each((listener, role) => give(definite.get(role), (records) => listener.onRecords(records)));
    this.#each((listener, role) => give(open.get(role), (records) => listener.onUncommitted(records)));
  }

  #each(call: (listener: FeedListener, role: Role) => void): void {
    for (const follower of [...this.#followers]) if (follower.attached) this.#call(follower, call);
  }

  #call(follower: Follower, call: (listener: FeedListener, role: Role) => void): void {
    // A listener may have closed this or another feed.
    if (!this.#followers.has(follower)) return;
    try {
      call(follower.listener, follower.role);
    } catch (error) {
      this.#context.warn(`A listener of role ${JSON.stringify(follower.role)} threw`, error);
    }
  }

  #release(): void {
    for (const waiter of this.#waiters) {
      if (this.position < waiter.end) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(waiter.end);
    }
  }

  #now() {
    return { wallMs: this.#map.clock.wallMs(), monotonicMs: this.#map.clock.monotonicMs() };
  }

  /** Away for so long that tombstones may have been cleaned away unread. */
  #isStale(): boolean {
    const readAt = this.#readAt;
    if (readAt === undefined) return false;
    const now = this.#now();
    // Monotonic time stands still while the machine is suspended, wall time may be stepped: the longer one counts.
    return Math.max(now.wallMs - readAt.wallMs, now.monotonicMs - readAt.monotonicMs) > this.#context.staleAfterMs();
  }

  #logStartMoved(logStart: bigint): boolean {
    const moved = this.#logStart >= 0n && logStart > this.#logStart;
    if (!moved) this.#logStart = logStart;
    return moved;
  }
}
