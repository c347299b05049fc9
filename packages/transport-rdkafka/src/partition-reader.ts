import type { CoordinationRecord, Deadline, FeedListener, KrabkaError, Role } from "@krabka/core";
import type { NativeMessage } from "./native-binding.js";
import { PartitionView, type ReadEntry, readEntry } from "./partition-view.js";
import type { TailProbe } from "./tail-probe.js";

/** One feed on the partition. Until it is attached it has heard nothing; then it gets the view and all that follows. */
export interface Follower {
  readonly role: Role;
  readonly listener: FeedListener;
  attached: boolean;
}

/** How long the committed consumer may be silent before the end is looked at by other means. */
const QUIET_MS = 2;
/** The same while the first record has still to come: the consumer looks for the partition's leader. */
const COLD_QUIET_MS = 100;
/** How long committed records may take from the end of their transaction until they are shown. */
const SETTLE_MS = 400;

/** One partition of the coordination topic: what was read, and who is told. */
export class PartitionReader {
  readonly partition: number;
  readonly #probe: TailProbe;
  readonly #followers = new Set<Follower>();
  readonly #waiters = new Set<() => void>();
  readonly #ending = new Set<(why: KrabkaError) => void>();
  #view = new PartitionView(0n);
  #begun = false;
  #cold = true;
  #ended: KrabkaError | undefined;

  constructor(partition: number, probe: TailProbe) {
    this.partition = partition;
    this.#probe = probe;
  }

  get position(): bigint {
    return this.#view.position;
  }

  get isEmpty(): boolean {
    return this.#followers.size === 0;
  }

  /** Why reading ended for good. */
  get ended(): KrabkaError | undefined {
    return this.#ended;
  }

  add(follower: Follower): void {
    this.#followers.add(follower);
    if (this.#cold) {
      // Who is here before the first record needs no view.
      follower.attached = !this.#begun;
      return;
    }
    // Not from inside `follow`, whose caller does not have its feed yet.
    queueMicrotask(() => this.#attach(follower));
  }

  remove(follower: Follower): void {
    this.#followers.delete(follower);
  }

  /** A committed record, in log order. */
  take(message: NativeMessage): void {
    if (this.#ended !== undefined) return;
    this.#begun = true;
    const entry = readEntry(message);
    // librdkafka goes back to the start when the log no longer has what comes next.
    if (entry.offset < this.#view.position) this.#startOver(entry.offset);
    this.#view.take(entry);
    for (const follower of this.#followers) if (follower.attached) tell(follower, entry);
    this.#moved();
  }

  /** All before `offset` was read. */
  reached(offset: bigint): void {
    if (this.#ended !== undefined) return;
    if (offset < this.#view.position) this.#startOver(offset);
    this.#view.position = offset;
    this.#warm();
    this.#moved();
  }

  /** Reading fails at present and is being retried. */
  trouble(error: KrabkaError): void {
    for (const { listener } of [...this.#followers]) listener.onError(error);
  }

  /** Reading ended for good. */
  end(error: KrabkaError, tell = true): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    if (tell) this.trouble(error);
    this.#followers.clear();
    for (const reject of this.#ending) reject(error);
    this.#moved();
  }

  /**
   * Resolves once `follower` was told everything of its role that was committed before now.
   *
   * @returns the partition's end now; or, where records of the role stand behind a transaction that stays open, the offset
   * up to which they were told.
   */
  async sync(follower: Follower, deadline: Deadline): Promise<bigint> {
    const { begin, end } = await this.#unlessEnded(deadline.race(this.#probe.bounds(this.partition, deadline)));
    if (begin > this.#view.position) {
      if (this.#view.position > 0n) this.#startOver(begin);
      this.#view.position = begin;
    }
    while (this.#view.position < end) {
      if (this.#ended !== undefined) throw this.#ended;
      const before = this.#view.position;
      await this.#movedPast(before, deadline, this.#cold ? COLD_QUIET_MS : QUIET_MS);
      if (this.#view.position === before) return await this.#syncByProbe(follower, before, end, deadline);
    }
    if (this.#ended !== undefined) throw this.#ended;
    this.#attach(follower);
    return end;
  }

  /** Nothing more comes by itself: what stands between here and the end is told apart by role. */
  async #syncByProbe(follower: Follower, from: bigint, end: bigint, deadline: Deadline): Promise<bigint> {
    const entries = await this.#unlessEnded(this.#probe.scan(this.partition, from, end, deadline));
    const own = entries.filter(({ role }) => role === undefined || role === follower.role);
    const last = own.at(-1);
    this.#attach(follower);
    if (last === undefined || (await this.#settled(last.offset, deadline))) return end;
    if (this.#ended !== undefined) throw this.#ended;
    const held = own.filter(({ offset }) => offset >= this.#view.position);
    const records = held.flatMap((entry): CoordinationRecord[] => ("record" in entry ? [entry.record] : []));
    if (records.length > 0 && this.#followers.has(follower)) follower.listener.onUncommitted(records);
    return this.#view.position;
  }

  /** Resolves like `work`, or rejects when reading ends for good first. */
  async #unlessEnded<T>(work: Promise<T>): Promise<T> {
    work.catch(() => undefined);
    if (this.#ended !== undefined) throw this.#ended;
    let leave = (_: KrabkaError): void => undefined;
    const ended = new Promise<never>((_, reject) => {
      leave = reject;
      this.#ending.add(reject);
    });
    return await Promise.race([work, ended]).finally(() => this.#ending.delete(leave));
  }

  /** Whether what stands at `offset` was decided in the usual time. */
  async #settled(offset: bigint, deadline: Deadline): Promise<boolean> {
    const limit = deadline.within(SETTLE_MS);
    while (this.#view.position <= offset && this.#ended === undefined) {
      deadline.throwIfEnded();
      if (limit.ended !== undefined) return false;
      await this.#movedPast(this.#view.position, deadline, limit.remainingMs);
    }
    return this.#view.position > offset;
  }

  async #movedPast(position: bigint, deadline: Deadline, limitMs: number): Promise<void> {
    if (this.#view.position > position) return;
    let wake = (): void => undefined;
    const moved = new Promise<void>((resolve) => {
      wake = resolve;
      this.#waiters.add(wake);
    });
    const timer = deadline.clock.setTimer(limitMs, wake);
    try {
      await deadline.race(moved);
    } finally {
      timer.cancel();
      this.#waiters.delete(wake);
    }
  }

  #moved(): void {
    for (const wake of this.#waiters) wake();
    this.#waiters.clear();
  }

  /** The end was seen once: from now on everything is told as it comes. */
  #warm(): void {
    if (!this.#cold) return;
    this.#cold = false;
    for (const follower of this.#followers) this.#attach(follower);
  }

  #attach(follower: Follower): void {
    if (follower.attached || !this.#followers.has(follower)) return;
    follower.attached = true;
    const { listener, role } = follower;
    for (const { offset, error } of this.#view.malformedFor(role)) listener.onMalformed(offset, error);
    const records = this.#view.recordsOf(role);
    if (records.length > 0) listener.onRecords(records);
  }

  #startOver(position: bigint): void {
    this.#view = new PartitionView(position);
    for (const follower of this.#followers) if (follower.attached) follower.listener.onReset();
  }
}

const tell = ({ role, listener }: Follower, entry: ReadEntry): void => {
  if ("record" in entry) {
    if (entry.role === role) listener.onRecords([entry.record]);
  } else if (entry.role === undefined || entry.role === role) listener.onMalformed(entry.offset, entry.error);
};
