/** A stored value. */
export interface Coordinate {
  readonly value: Uint8Array;
  /**
   * Changes with every write and never repeats: not over delete and re-create, not over restarts, and not in a copy that was
   * restored from a backup. Compare for equality only.
   */
  readonly version: string;
}

/** A lease as the authority keeps it. */
export interface LeaseEntry {
  readonly owner: string;
  /** Grows with every grant of any lease, so also with every grant of this one. */
  readonly epoch: bigint;
  readonly ttlMs: number;
  /** The lease is live while service time < this. */
  readonly expiresAtMs: number;
}

export type MemberStatus = "JOINING" | "ALIVE" | "SUSPECT" | "DEAD" | "LEFT";

export interface MemberEntry {
  readonly status: MemberStatus;
  /** Chosen by the member; grows with each of its lives. */
  readonly epoch: bigint;
  /** Service time at which the status began. */
  readonly sinceMs: number;
  /** Service time of the last join or heartbeat. */
  readonly heardAtMs: number;
}

/** One opening of the log. Openings form a chain; a restored backup forks it, and its next opening gets another id. */
export interface History {
  readonly id: string;
  /** The last revision of the opening before. */
  readonly after: bigint;
  /** The first revision of this opening. */
  readonly from: bigint;
}

/** One entry before and after. `undefined` is absence. */
export type Change =
  | { readonly kind: "coordinate"; readonly name: string; readonly after: Coordinate | undefined }
  | { readonly kind: "lease"; readonly name: string; readonly after: LeaseEntry | undefined }
  | { readonly kind: "member"; readonly name: string; readonly after: MemberEntry | undefined }
  | { readonly kind: "history"; readonly after: History }
  | { readonly kind: "forgotten-epoch"; readonly after: bigint };

/** What a decision may look at. */
export interface StateView {
  /** Number of the last change. Only grows. */
  readonly revision: bigint;
  /** Highest epoch of all members that were forgotten: nobody joins anew at or below it. */
  readonly forgottenEpoch: bigint;
  readonly history: History | undefined;
  coordinate(key: string): Coordinate | undefined;
  lease(name: string): LeaseEntry | undefined;
  member(id: string): MemberEntry | undefined;
  leases(): Iterable<readonly [name: string, lease: LeaseEntry]>;
  members(): Iterable<readonly [id: string, member: MemberEntry]>;
}

export const isLive = (lease: LeaseEntry | undefined, atMs: number): lease is LeaseEntry =>
  lease !== undefined && atMs < lease.expiresAtMs;
