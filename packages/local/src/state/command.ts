import type { LeaseEntry, MemberEntry } from "./model.js";

/** Holding a lease as a condition. */
export interface LeaseCondition {
  readonly leaseId: string;
  readonly epoch: bigint;
}

/** How long silence may last. */
export interface MembershipTimings {
  /** Silence after which an ALIVE member becomes SUSPECT. */
  readonly suspectAfterMs: number;
  /** How long a member stays SUSPECT before it is DEAD. */
  readonly deadAfterMs: number;
  /** How long a DEAD or LEFT member is remembered. */
  readonly forgetAfterMs: number;
}

/** What a caller may ask for; several together as one step of all or nothing. */
export type Step =
  | {
      readonly kind: "swap";
      readonly key: string;
      /** `undefined`: the key must be absent. */
      readonly expected: Uint8Array | undefined;
      /** `undefined`: the key is deleted. */
      readonly replacement: Uint8Array | undefined;
      readonly expectedVersion: string | undefined;
      readonly holding: LeaseCondition | undefined;
    }
  | { readonly kind: "acquire"; readonly lease: string; readonly owner: string; readonly ttlMs: number }
  | {
      readonly kind: "renew";
      readonly lease: string;
      readonly owner: string;
      readonly epoch: bigint;
      readonly ttlMs: number;
    }
  | { readonly kind: "release"; readonly lease: string; readonly owner: string; readonly epoch: bigint }
  | {
      readonly kind: "join" | "heartbeat" | "suspect" | "declareDead" | "leave";
      readonly member: string;
      readonly epoch: bigint;
    };

/** What the log holds: everything that ever changed the state, in order. */
export type Command =
  | Step
  | { readonly kind: "batch"; readonly steps: readonly Step[] }
  | { readonly kind: "expire"; readonly timings: MembershipTimings }
  | { readonly kind: "open"; readonly historyId: string; readonly raiseBy: bigint };

export type SwapOutcome =
  | { readonly kind: "swap"; readonly success: true; readonly version: string | undefined }
  | {
      readonly kind: "swap";
      readonly success: false;
      readonly version: string | undefined;
      readonly mismatch: "VALUE" | "VERSION" | "LEASE";
    };

export type LeaseOutcome =
  | { readonly kind: "lease"; readonly success: true; readonly lease: LeaseEntry }
  | { readonly kind: "lease"; readonly success: false; readonly holder: LeaseEntry | undefined };

/**
 * - `STALE_EPOCH`: the epoch is not above the one to beat.
 * - `JOIN_AGAIN`: this member is unknown at this epoch, or its life at this epoch has ended; join with a higher epoch.
 */
export type MemberRefusal = "STALE_EPOCH" | "JOIN_AGAIN";

export type MemberOutcome =
  | { readonly kind: "member"; readonly success: true; readonly member: MemberEntry }
  | {
      readonly kind: "member";
      readonly success: false;
      readonly reason: MemberRefusal;
      /** A join needs a higher one. */
      readonly epochToBeat: bigint;
      readonly member: MemberEntry | undefined;
    };

export type StepOutcome = SwapOutcome | LeaseOutcome | MemberOutcome;

export type Outcome =
  | StepOutcome
  | { readonly kind: "batch"; readonly success: boolean; readonly outcomes: readonly StepOutcome[] }
  | { readonly kind: "done"; readonly success: true };
