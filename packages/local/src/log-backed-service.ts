import { randomBytes } from "node:crypto";
import { Authority, type Decided } from "./authority.js";
import { invalid } from "./errors.js";
import { checkEpoch, checkName, checkTtl, checkValue, type Limits, limitsOf, type ServiceOptions } from "./limits.js";
import type { DurableLog } from "./log/durable-log.js";
import { changeResult, fencingTokenOf, leaseOf, leaseResult, memberOf, memberResult, stepResult } from "./outcomes.js";
import {
  ABSENT,
  type CallOptions,
  type ChangeConditions,
  type ChangeResult,
  type Coordinate,
  type CoordinationService,
  type Lease,
  type LeaseResult,
  type Member,
  type MemberResult,
  type Reading,
  type ServiceStatus,
  type TransactResult,
} from "./service.js";
import type { LeaseCondition, Step } from "./state/command.js";
import { type History, isLive } from "./state/model.js";
import type { State } from "./state/state.js";
import { touches } from "./state/transition.js";
import { systemClock } from "./system-clock.js";
import { resumePoint, type Watch, Watches, type WatchFilter, type WatchListener } from "./watches.js";

/** Bytes of an opening's id: enough that no two openings ever share one. */
const HISTORY_ID_BYTES = 8;
const MAX_RAISE = 2n ** 48n;

/** A coordination service whose state is the sum of a durable log. One service per log. */
export class LogBackedCoordinationService implements CoordinationService {
  readonly #authority: Authority;
  readonly #log: DurableLog;
  readonly #limits: Limits;
  readonly #watches: Watches;

  private constructor(authority: Authority, log: DurableLog, limits: Limits, watches: Watches) {
    this.#authority = authority;
    this.#log = log;
    this.#limits = limits;
    this.#watches = watches;
  }

  /**
   * Rebuilds the state from a log that the host opened and closes.
   *
   * @throws {LocalError} `DAMAGED` where what is stored makes no sense, `FAILED`, `INVALID_ARGUMENT`, `ABORTED`
   */
  static async open(log: DurableLog, options: ServiceOptions = {}): Promise<LogBackedCoordinationService> {
    const limits = limitsOf(options);
    const raiseBy = options.raiseCountersBy ?? 0n;
    if (typeof raiseBy !== "bigint" || raiseBy < 0n || raiseBy > MAX_RAISE) {
      throw invalid("raiseCountersBy", "a bigint in 0..2^48", raiseBy);
    }
    const historyId = randomBytes(HISTORY_ID_BYTES).toString("hex");
    const opening = { historyId, raiseBy };
    const authority = await Authority.open(log, options.clock ?? systemClock, limits, opening, options.signal);
    const { histories, revision } = authority.state;
    const watches = new Watches(
      {
        maxWatches: limits.maxWatches,
        queueNotices: limits.watchQueueNotices,
        rememberedNotices: limits.rememberedNotices,
        onListenerError:
          options.onListenerError ?? ((error) => process.emitWarning(`A watch's listener failed: ${error}`)),
      },
      histories,
      (histories.at(-1) as History).after,
      revision,
    );
    authority.onDurable((changes, at) => watches.publish(changes, at));
    return new LogBackedCoordinationService(authority, log, limits, watches);
  }

  async get(key: string, options: CallOptions = {}): Promise<Reading<Coordinate | undefined>> {
    checkName("A key", key, this.#limits.maxNameBytes);
    return this.#read((state) => {
      const found = state.coordinate(key);
      return found && { value: found.value.slice(), version: found.version };
    }, options);
  }

  async list(
    prefix = "",
    options: CallOptions = {},
  ): Promise<Reading<readonly { readonly key: string; readonly version: string }[]>> {
    return this.#read(
      (state) =>
        [...state.coordinates()]
          .filter(([key]) => key.startsWith(prefix))
          .map(([key, { version }]) => ({ key, version }))
          .sort((a, b) => (a.key < b.key ? -1 : 1)),
      options,
    );
  }

  async compareAndSet(
    key: string,
    expected: Uint8Array | typeof ABSENT,
    replacement: Uint8Array,
    conditions: ChangeConditions = {},
  ): Promise<ChangeResult> {
    checkValue("The replacement", replacement, this.#limits.maxValueBytes);
    return this.#swap(key, expected === ABSENT ? undefined : expected, replacement, conditions);
  }

  async delete(key: string, expected: Uint8Array, conditions: ChangeConditions = {}): Promise<ChangeResult> {
    checkValue("The expected value", expected, this.#limits.maxValueBytes);
    return this.#swap(key, expected, undefined, conditions);
  }

  acquireLease(leaseId: string, owner: string, ttlMs: number, options: CallOptions = {}): Promise<LeaseResult> {
    return this.#lease({ kind: "acquire", lease: leaseId, owner, ttlMs }, options);
  }

  renewLease(
    leaseId: string,
    owner: string,
    expectedEpoch: bigint,
    ttlMs: number,
    options: CallOptions = {},
  ): Promise<LeaseResult> {
    return this.#lease({ kind: "renew", lease: leaseId, owner, epoch: expectedEpoch, ttlMs }, options);
  }

  releaseLease(leaseId: string, owner: string, expectedEpoch: bigint, options: CallOptions = {}): Promise<LeaseResult> {
    return this.#lease({ kind: "release", lease: leaseId, owner, epoch: expectedEpoch }, options);
  }

  async lease(leaseId: string, options: CallOptions = {}): Promise<Reading<Lease | undefined>> {
    checkName("A lease id", leaseId, this.#limits.maxNameBytes);
    return this.#read((state, atMs) => {
      const found = state.lease(leaseId);
      return isLive(found, atMs) ? leaseOf(leaseId, found, atMs) : undefined;
    }, options);
  }

  join(memberId: string, epoch: bigint, options: CallOptions = {}): Promise<MemberResult> {
    return this.#member({ kind: "join", member: memberId, epoch }, options);
  }

  heartbeat(memberId: string, epoch: bigint, options: CallOptions = {}): Promise<MemberResult> {
    return this.#member({ kind: "heartbeat", member: memberId, epoch }, options);
  }

  suspect(memberId: string, epoch: bigint, options: CallOptions = {}): Promise<MemberResult> {
    return this.#member({ kind: "suspect", member: memberId, epoch }, options);
  }

  declareDead(memberId: string, epoch: bigint, options: CallOptions = {}): Promise<MemberResult> {
    return this.#member({ kind: "declareDead", member: memberId, epoch }, options);
  }

  leave(memberId: string, epoch: bigint, options: CallOptions = {}): Promise<MemberResult> {
    return this.#member({ kind: "leave", member: memberId, epoch }, options);
  }

  async members(options: CallOptions = {}): Promise<Reading<readonly Member[]>> {
    return this.#read((state) => membersOf(state), options);
  }

  async transact(steps: readonly Step[], options: CallOptions = {}): Promise<TransactResult> {
    for (const step of steps) this.#check(step);
    if (new Set(steps.map(touches)).size < steps.length || steps.length === 0) {
      throw invalid(
        "A transaction's steps",
        "at least one, each about another key, lease or member",
        steps.map(touches),
      );
    }
    const { outcome, atMs } = await this.#authority.submit(
      { kind: "batch", steps: steps.map(ownCopy) },
      options.signal,
    );
    if (outcome.kind !== "batch") throw unexpected(outcome);
    const results = outcome.outcomes.map((result, index) => stepResult(nameOf(steps[index] as Step), result, atMs));
    return { success: outcome.success, results };
  }

  async watch(listener: WatchListener, filter: WatchFilter = {}, options: CallOptions = {}): Promise<Watch> {
    // What the caller has read may be ahead of what was published; wait for it, so that no point from a reading is unknown.
    return this.#authority.read(() => undefined, options.signal).then(() => this.#watches.open(listener, filter));
  }

  status(): ServiceStatus {
    const { state, nowMs } = this.#authority;
    return {
      history: (state.history as History).id,
      at: pointOf(state),
      coordinates: state.counts.coordinates,
      coordinateBytes: state.coordinateBytes,
      leases: [...state.leases()]
        .filter(([, lease]) => isLive(lease, nowMs))
        .map(([leaseId, lease]) => leaseOf(leaseId, lease, nowMs)),
      members: membersOf(state),
      watches: this.#watches.count,
      pendingCommands: this.#authority.pending,
      log: this.#log.status(),
      warnings: this.#log.warnings,
    };
  }

  async close(): Promise<void> {
    this.#watches.closeAll();
    await this.#authority.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #read<T>(look: (state: State, atMs: number) => T, options: CallOptions): Promise<Reading<T>> {
    return this.#authority.read((state, atMs) => ({ found: look(state, atMs), at: pointOf(state) }), options.signal);
  }

  async #submit(step: Step, options: CallOptions): Promise<Decided> {
    this.#check(step);
    return this.#authority.submit(ownCopy(step), options.signal);
  }

  async #swap(
    key: string,
    expected: Uint8Array | undefined,
    replacement: Uint8Array | undefined,
    conditions: ChangeConditions,
  ): Promise<ChangeResult> {
    const { expectedVersion } = conditions;
    const holding = holdingOf(conditions);
    const step = { kind: "swap", key, expected, replacement, expectedVersion, holding } as const;
    const { outcome } = await this.#submit(step, conditions);
    if (outcome.kind !== "swap") throw unexpected(outcome);
    return changeResult(outcome);
  }

  async #lease(step: Extract<Step, { lease: string }>, options: CallOptions): Promise<LeaseResult> {
    const { outcome, atMs } = await this.#submit(step, options);
    if (outcome.kind !== "lease") throw unexpected(outcome);
    return leaseResult(step.lease, outcome, atMs);
  }

  async #member(step: Extract<Step, { member: string }>, options: CallOptions): Promise<MemberResult> {
    const { outcome } = await this.#submit(step, options);
    if (outcome.kind !== "member") throw unexpected(outcome);
    return memberResult(step.member, outcome);
  }

  #check(step: Step): void {
    const { maxNameBytes, maxValueBytes, maxTtlMs } = this.#limits;
    switch (step.kind) {
      case "swap":
        checkName("A key", step.key, maxNameBytes);
        if (step.expected !== undefined) checkValue("The expected value", step.expected, maxValueBytes);
        if (step.replacement !== undefined) checkValue("The replacement", step.replacement, maxValueBytes);
        if (step.expectedVersion !== undefined) checkName("An expected version", step.expectedVersion, maxNameBytes);
        if (step.holding !== undefined) checkName("A lease id", step.holding.leaseId, maxNameBytes);
        if (step.holding !== undefined) checkEpoch(step.holding.epoch);
        break;
      case "acquire":
      case "renew":
      case "release":
        checkName("A lease id", step.lease, maxNameBytes);
        checkName("An owner", step.owner, maxNameBytes);
        if (step.kind !== "release") checkTtl(step.ttlMs, maxTtlMs);
        if (step.kind !== "acquire") checkEpoch(step.epoch);
        break;
      default:
        checkName("A member id", step.member, maxNameBytes);
        checkEpoch(step.epoch);
    }
  }
}

const pointOf = (state: State): string => resumePoint(state.revision, state.history as History);

const membersOf = (state: State): readonly Member[] => [...state.members()].map(([id, entry]) => memberOf(id, entry));

const nameOf = (step: Step): string => ("key" in step ? step.key : "lease" in step ? step.lease : step.member);

/** The caller may reuse its buffers as soon as the call returns. */
const ownCopy = (step: Step): Step =>
  step.kind === "swap" && step.replacement !== undefined ? { ...step, replacement: step.replacement.slice() } : step;

const holdingOf = ({ leaseId, fencingToken }: ChangeConditions): LeaseCondition | undefined => {
  if (leaseId === undefined && fencingToken === undefined) return undefined;
  if (leaseId === undefined || fencingToken === undefined) {
    throw invalid("A lease condition", "a leaseId and a fencingToken", leaseId ?? fencingToken);
  }
  // A token that no local lease ever has must hold for none.
  const isLocal = fencingToken.equals(fencingTokenOf(fencingToken.term));
  return { leaseId, epoch: isLocal ? fencingToken.term : 0n };
};

const unexpected = (outcome: { readonly kind: string }): Error => new Error(`Decided as ${outcome.kind}`);
