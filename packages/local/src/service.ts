import type { AbortSignalLike, FencingToken } from "@krabka/core";
import type { LogStatus } from "./log/durable-log.js";
import type { MemberRefusal, Step } from "./state/command.js";
import type { MemberStatus } from "./state/model.js";
import type { Watch, WatchFilter, WatchListener } from "./watches.js";

/** Stands for a key that does not exist. */
export const ABSENT = "absent";

export interface CallOptions {
  /** Ends the wait, not the command: one that was taken still takes effect. */
  readonly signal?: AbortSignalLike | undefined;
}

/** Further conditions of a change; all must hold. */
export interface ChangeConditions extends CallOptions {
  /** Also refuses a value that was changed and changed back, deleted and created again. */
  readonly expectedVersion?: string | undefined;
  /** Needs the lease to be held under `fencingToken`; give both or none. */
  readonly leaseId?: string | undefined;
  readonly fencingToken?: FencingToken | undefined;
}

export interface Coordinate {
  readonly value: Uint8Array;
  readonly version: string;
}

/** Something read, with the point from which a watch misses nothing. */
export interface Reading<T> {
  readonly found: T;
  readonly at: string;
}

export type ChangeResult =
  | {
      readonly success: true;
      /** The new version; undefined after a deletion. */
      readonly version: string | undefined;
    }
  | {
      readonly success: false;
      /** The version that is there; undefined if the key does not exist. */
      readonly version: string | undefined;
      /** The first condition that did not hold, in the order lease, value, version. */
      readonly mismatch: "VALUE" | "VERSION" | "LEASE";
    };

export interface Lease {
  readonly leaseId: string;
  readonly owner: string;
  /** Names this tenure. Grows with every grant, also over restarts; stays the same over renewals. */
  readonly epoch: bigint;
  /** For the resource, which must refuse lower ones of this lease: the epoch as a term. */
  readonly fencingToken: FencingToken;
  readonly ttlMs: number;
  /** What was left when the authority decided. A holder counts `ttlMs` from before its own call instead. */
  readonly remainingMs: number;
}

export type LeaseResult =
  | { readonly success: true; readonly lease: Lease }
  /** Nothing changed. `holder` is who has it; undefined if nobody does. */
  | { readonly success: false; readonly holder: Lease | undefined };

export interface Member {
  readonly memberId: string;
  readonly status: MemberStatus;
  readonly epoch: bigint;
}

export type MemberResult =
  | { readonly success: true; readonly member: Member }
  | {
      readonly success: false;
      readonly reason: MemberRefusal;
      /** A join needs a higher epoch than this. */
      readonly epochToBeat: bigint;
      readonly member: Member | undefined;
    };

export type StepResult = ChangeResult | LeaseResult | MemberResult;

export interface TransactResult {
  /** Whether every step succeeded. If not, nothing changed. */
  readonly success: boolean;
  /** One for each step; with `success: false` those that say success would have succeeded on their own. */
  readonly results: readonly StepResult[];
}

/** What operators may see: names and numbers, never values. */
export interface ServiceStatus {
  /** Changes with every opening, so also when a backup was restored. */
  readonly history: string;
  readonly at: string;
  readonly coordinates: number;
  readonly coordinateBytes: number;
  readonly leases: readonly Lease[];
  readonly members: readonly Member[];
  readonly watches: number;
  /** Commands that wait for the disk. */
  readonly pendingCommands: number;
  readonly log: LogStatus;
  readonly warnings: readonly string[];
}

/**
 * A durable authority for coordinates, exclusive leases and membership inside one host, or behind a service boundary that
 * somebody deliberately owns.
 *
 * One instance is the authority for what it holds. Several independent instances form no quorum and prevent no split brain:
 * where several hosts must agree, use a backend that replicates, such as Apache Kafka.
 *
 * Nothing is answered, reads included, before all that the answer rests on is durable. Refusals are results; errors are
 * thrown for what the caller, a limit or the storage did wrong.
 *
 * @throws {LocalError} every method: `INVALID_ARGUMENT`, `LIMIT_REACHED`, `QUEUE_FULL`, `FAILED`, `ABORTED`, `CLOSED`.
 */
export interface CoordinationService extends AsyncDisposable {
  get(key: string, options?: CallOptions): Promise<Reading<Coordinate | undefined>>;
  /** Keys with their versions, in order, without values. */
  list(
    prefix?: string,
    options?: CallOptions,
  ): Promise<Reading<readonly { readonly key: string; readonly version: string }[]>>;
  /** Stores `replacement` if the key's value still is `expected` and every further condition holds. */
  compareAndSet(
    key: string,
    expected: Uint8Array | typeof ABSENT,
    replacement: Uint8Array,
    conditions?: ChangeConditions,
  ): Promise<ChangeResult>;
  /** Deletes the key if its value still is `expected` and every further condition holds. */
  delete(key: string, expected: Uint8Array, conditions?: ChangeConditions): Promise<ChangeResult>;

  /** Grants the lease if nobody holds it; the same owner is no exception, it renews by its epoch. */
  acquireLease(leaseId: string, owner: string, ttlMs: number, options?: CallOptions): Promise<LeaseResult>;
  /** Extends a live lease to `ttlMs` from now; never shortens it. */
  renewLease(
    leaseId: string,
    owner: string,
    expectedEpoch: bigint,
    ttlMs: number,
    options?: CallOptions,
  ): Promise<LeaseResult>;
  /** Ends a live lease. */
  releaseLease(leaseId: string, owner: string, expectedEpoch: bigint, options?: CallOptions): Promise<LeaseResult>;
  /** Who holds the lease now, if anybody. */
  lease(leaseId: string, options?: CallOptions): Promise<Reading<Lease | undefined>>;

  /** Enters as JOINING under an epoch that no earlier life of this member had. The first heartbeat makes it ALIVE. */
  join(memberId: string, epoch: bigint, options?: CallOptions): Promise<MemberResult>;
  /** Shows that the member lives. Refused with `JOIN_AGAIN` when it is unknown or that life has ended. */
  heartbeat(memberId: string, epoch: bigint, options?: CallOptions): Promise<MemberResult>;
  /** Reports that somebody else seems silent. Takes effect only at the member's current epoch. */
  suspect(memberId: string, epoch: bigint, options?: CallOptions): Promise<MemberResult>;
  /** Ends the member's life at this epoch as DEAD. */
  declareDead(memberId: string, epoch: bigint, options?: CallOptions): Promise<MemberResult>;
  /** Ends the member's own life at this epoch as LEFT. */
  leave(memberId: string, epoch: bigint, options?: CallOptions): Promise<MemberResult>;
  /** Everybody who is remembered, DEAD and LEFT included. Being listed authorises nothing. */
  members(options?: CallOptions): Promise<Reading<readonly Member[]>>;

  /** Several steps of all or nothing, in one record. Each sees the state before; no two may name the same thing. */
  transact(steps: readonly Step[], options?: CallOptions): Promise<TransactResult>;

  /**
   * Tells `listener` of changes, best effort. None survives a restart; a new one may go on from a point that is remembered.
   *
   * @throws {LocalError} `TOO_OLD`, `OTHER_HISTORY`
   */
  watch(listener: WatchListener, filter?: WatchFilter, options?: CallOptions): Promise<Watch>;

  status(): ServiceStatus;
  /** Ends watches and refuses what comes later; waits for what was taken. The log stays open: it is the host's. Idempotent. */
  close(): Promise<void>;
}
