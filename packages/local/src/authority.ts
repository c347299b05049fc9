import { type AbortSignalLike, type Clock, MAX_TIMER_MS, type Timer } from "@krabka/core";
import { aborted, damaged, LocalError } from "./errors.js";
import { type Limits, timingsOf } from "./limits.js";
import type { DurableLog } from "./log/durable-log.js";
import { ServiceTime } from "./service-time.js";
import type { Command, Outcome } from "./state/command.js";
import { decodeEntry, encodeEntry } from "./state/command-codec.js";
import { memberDueAtMs } from "./state/membership.js";
import type { Change } from "./state/model.js";
import { State } from "./state/state.js";
import { decodeState, encodeState } from "./state/state-codec.js";
import { transition } from "./state/transition.js";

/** What was decided, and at which service time. */
export interface Decided {
  readonly outcome: Outcome;
  readonly atMs: number;
}

export type PublishChanges = (changes: readonly Change[], revision: bigint) => void;

/**
 * The one order of everything: commands are decided when they arrive, against all that was decided before, logged in that
 * order, and answered once they are durable. What time alone brings about happens before the first command at or after its
 * instant, so a renewal that came in time wins and one that came late loses, however long the disk takes.
 */
export class Authority {
  readonly state: State;
  readonly #log: DurableLog;
  readonly #clock: Clock;
  readonly #time: ServiceTime;
  readonly #limits: Limits;
  #publish: PublishChanges = () => undefined;
  /** Position of the next record. */
  #next: bigint;
  /** Settles when everything that was decided so far is durable. */
  #durable: Promise<void> = Promise.resolve();
  #pending = 0;
  /** Nothing becomes due before this instant of service time. */
  #dueAtMs: number;
  #timer: { readonly timer: Timer; readonly atMs: number } | undefined;
  #checkpointing = false;
  #failure: LocalError | undefined;
  #closed = false;

  private constructor(log: DurableLog, state: State, next: bigint, clock: Clock, limits: Limits) {
    this.#log = log;
    this.state = state;
    this.#next = next;
    this.#clock = clock;
    this.#limits = limits;
    this.#time = new ServiceTime(clock, state.atMs, state.wallMs);
    this.#dueAtMs = state.dueAtMs(timingsOf(limits));
  }

  /**
   * Rebuilds the state from the checkpoint and the records since then, and begins a new opening.
   *
   * @throws {LocalError} `DAMAGED` where a stored state or command makes no sense; `FAILED`, `ABORTED`
   */
  static async open(
    log: DurableLog,
    clock: Clock,
    limits: Limits,
    opening: { readonly historyId: string; readonly raiseBy: bigint },
    signal?: AbortSignalLike,
  ): Promise<Authority> {
    const state = restoreCheckpoint(log);
    let next = log.checkpoint?.position ?? 0n;
    for await (const record of log.read(next)) {
      if (signal?.aborted === true) throw aborted(signal, "nothing was opened");
      try {
        replay(state, record.bytes);
      } catch (error) {
        throw damaged(record.place, `record ${record.position} makes no sense: ${(error as Error).message}`, error);
      }
      next = record.position + 1n;
    }
    const authority = new Authority(log, state, next, clock, limits);
    try {
      await authority.submit({ kind: "open", ...opening }, signal);
    } catch (error) {
      void authority.close();
      throw error;
    }
    authority.#arm();
    return authority;
  }

  /** Tells of changes once they are durable, in order. */
  onDurable(publish: PublishChanges): void {
    this.#publish = publish;
  }

  get pending(): number {
    return this.#pending;
  }

  /** Service time now. */
  get nowMs(): number {
    return this.#time.nowMs();
  }

  /** Decides `command` at once and resolves when all that its outcome rests on is durable. */
  async submit(command: Command, signal?: AbortSignalLike): Promise<Decided> {
    this.#refuse(signal);
    // An opening comes before all that happens in it: until then, revisions count as ones of the opening before.
    if (command.kind !== "open") this.#expireDue();
    const decided = this.#decide(command);
    await this.#whenDurable(signal);
    return decided;
  }

  /** Looks at the state as of now and resolves when all that was seen is durable. */
  async read<T>(look: (state: State, atMs: number) => T, signal?: AbortSignalLike): Promise<T> {
    this.#refuse(signal);
    this.#expireDue();
    const seen = look(this.state, this.#time.nowMs());
    await this.#whenDurable(signal);
    return seen;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.timer.cancel();
    await this.#durable.catch(() => undefined);
  }

  #refuse(signal: AbortSignalLike | undefined): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#closed) throw new LocalError("CLOSED", "The service is closed");
    if (signal?.aborted === true) throw aborted(signal, "nothing was done");
    if (this.#pending >= this.#limits.maxPendingCommands) {
      throw new LocalError("QUEUE_FULL", `${this.#pending} commands wait for the disk; maxPendingCommands is reached`);
    }
  }

  #decide(command: Command): Decided {
    const atMs = this.#time.nowMs();
    const wallMs = this.#time.wallMs();
    const { outcome, changes } = transition(this.state, command, atMs);
    if (changes.length === 0) return { outcome, atMs };
    this.#checkCounts(changes);
    const record = encodeEntry({ atMs, wallMs, command });
    if (record.length > this.#log.maxRecordBytes) {
      throw new LocalError(
        "LIMIT_REACHED",
        `The command takes ${record.length} bytes; a record ${this.#log.maxRecordBytes}`,
      );
    }
    this.state.commit(changes, atMs, wallMs);
    this.#append(record, changes);
    for (const change of changes) this.#dueAtMs = Math.min(this.#dueAtMs, this.#dueOf(change));
    this.#arm();
    return { outcome, atMs };
  }

  #append(record: Uint8Array, changes: readonly Change[]): void {
    const position = this.#next;
    const { revision } = this.state;
    this.#next += 1n;
    this.#pending += 1;
    this.#durable = this.#log.append(record).then(
      (stored) => {
        this.#pending -= 1;
        if (stored !== position) {
          throw this.#fail(new Error(`record ${position} was stored as ${stored}: the log has another writer`));
        }
        this.#publish(changes, revision);
        this.#checkpointIfDue();
      },
      (error: unknown) => {
        this.#pending -= 1;
        throw this.#fail(error);
      },
    );
    // Whoever waits is told by `#whenDurable`; a record that nobody waits for must not end the process.
    this.#durable.catch(() => undefined);
  }

  async #whenDurable(signal: AbortSignalLike | undefined): Promise<void> {
    const durable = this.#durable;
    if (signal === undefined) return durable;
    let stop = (): void => undefined;
    const abort = new Promise<never>((_, reject) => {
      const listener = () => reject(aborted(signal, "a command that was taken still takes effect"));
      signal.addEventListener("abort", listener, { once: true });
      stop = () => signal.removeEventListener("abort", listener);
    });
    try {
      await Promise.race([durable, abort]);
    } finally {
      stop();
    }
  }

  #expireDue(): void {
    if (this.#time.nowMs() < this.#dueAtMs) return;
    const timings = timingsOf(this.#limits);
    this.#dueAtMs = this.state.dueAtMs(timings);
    if (this.#time.nowMs() < this.#dueAtMs) return;
    this.#decide({ kind: "expire", timings });
    this.#dueAtMs = this.state.dueAtMs(timings);
    this.#arm();
  }

  #dueOf(change: Change): number {
    if (change.kind === "lease") return change.after?.expiresAtMs ?? Number.POSITIVE_INFINITY;
    if (change.kind !== "member" || change.after === undefined) return Number.POSITIVE_INFINITY;
    return memberDueAtMs(change.after, timingsOf(this.#limits));
  }

  /** One timer for what becomes due next. It only makes it known early: every command looks by itself. */
  #arm(): void {
    if (this.#closed || this.#failure !== undefined || this.#dueAtMs === Number.POSITIVE_INFINITY) return;
    if (this.#timer !== undefined && this.#timer.atMs <= this.#dueAtMs) return;
    this.#timer?.timer.cancel();
    const atMs = this.#dueAtMs;
    const delayMs = Math.min(Math.max(0, atMs - this.#time.nowMs()), MAX_TIMER_MS);
    const timer = this.#clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      if (this.#closed || this.#failure !== undefined) return;
      this.#expireDue();
      this.#arm();
    });
    this.#timer = { timer, atMs };
  }

  #checkCounts(changes: readonly Change[]): void {
    const { coordinates, leases, members } = this.state.counts;
    const added = { coordinate: 0, lease: 0, member: 0 };
    let bytes = this.state.coordinateBytes;
    for (const change of changes) {
      if (change.kind === "history" || change.kind === "forgotten-epoch") continue;
      added[change.kind] += this.state.adds(change);
      bytes += this.state.growth(change);
    }
    const limits = this.#limits;
    const over = (more: number, count: number, limit: keyof Limits): void => {
      if (more <= 0 || count + more <= limits[limit]) return;
      throw new LocalError("LIMIT_REACHED", `${count} are stored and ${limit} is ${limits[limit]}`);
    };
    over(added.coordinate, coordinates, "maxCoordinates");
    over(added.lease, leases, "maxLeases");
    over(added.member, members, "maxMembers");
    over(bytes - this.state.coordinateBytes, this.state.coordinateBytes, "maxCoordinateBytes");
  }

  #checkpointIfDue(): void {
    if (this.#checkpointing || this.#log.status().tailBytes < this.#limits.checkpointAfterBytes) return;
    this.#checkpointing = true;
    this.#checkpoint().then(
      () => {
        this.#checkpointing = false;
      },
      (error: unknown) => this.#fail(error),
    );
  }

  async #checkpoint(): Promise<void> {
    // The state is ahead of the disk by what is pending: it is that of `position` once all of it is durable.
    const position = this.#next;
    const bytes = encodeState(this.state);
    await this.#durable;
    if (!this.#closed) await this.#log.writeCheckpoint(position, bytes);
  }

  #fail(cause: unknown): LocalError {
    const message = cause instanceof Error ? cause.message : String(cause);
    this.#failure ??= new LocalError("FAILED", `The service refuses everything until it is opened again: ${message}`, {
      cause,
    });
    this.#timer?.timer.cancel();
    return this.#failure;
  }
}

const restoreCheckpoint = (log: DurableLog): State => {
  if (log.checkpoint === undefined) return new State();
  try {
    return decodeState(log.checkpoint.state);
  } catch (error) {
    throw damaged(log.checkpoint.place, `the state makes no sense: ${(error as Error).message}`, error);
  }
};

/** Only what changed something was logged, so a command that is refused now is not what was logged. */
const replay = (state: State, record: Uint8Array): void => {
  const { atMs, wallMs, command } = decodeEntry(record);
  if (atMs < state.atMs)
    throw new Error(`it was decided at ${atMs} ms, before the record ahead of it (${state.atMs} ms)`);
  const { outcome, changes } = transition(state, command, atMs);
  if (!outcome.success || changes.length === 0) throw new Error(`its ${command.kind} changes nothing`);
  state.commit(changes, atMs, wallMs);
};
