import { FencingToken } from "@krabka/core";
import type { ChangeResult, Lease, LeaseResult, Member, MemberResult, StepResult } from "./service.js";
import type { LeaseOutcome, MemberOutcome, StepOutcome, SwapOutcome } from "./state/command.js";
import type { LeaseEntry, MemberEntry } from "./state/model.js";

// From what the state machine decided to what a caller sees.

/** A local lease has no producer: its epoch is the term, and the rest is zero. */
export const fencingTokenOf = (epoch: bigint): FencingToken =>
  FencingToken.of({ term: epoch, producerId: 0n, epoch: 0 });

export const leaseOf = (leaseId: string, entry: LeaseEntry, atMs: number): Lease => ({
  leaseId,
  owner: entry.owner,
  epoch: entry.epoch,
  fencingToken: fencingTokenOf(entry.epoch),
  ttlMs: entry.ttlMs,
  remainingMs: Math.max(0, entry.expiresAtMs - atMs),
});

export const memberOf = (memberId: string, { status, epoch }: MemberEntry): Member => ({ memberId, status, epoch });

export const changeResult = ({ kind: _, ...result }: SwapOutcome): ChangeResult => result;

export const leaseResult = (leaseId: string, outcome: LeaseOutcome, atMs: number): LeaseResult =>
  outcome.success
    ? { success: true, lease: leaseOf(leaseId, outcome.lease, atMs) }
    : { success: false, holder: outcome.holder && leaseOf(leaseId, outcome.holder, atMs) };

export const memberResult = (memberId: string, outcome: MemberOutcome): MemberResult => {
  if (outcome.success) return { success: true, member: memberOf(memberId, outcome.member) };
  const { reason, epochToBeat, member } = outcome;
  return { success: false, reason, epochToBeat, member: member && memberOf(memberId, member) };
};

/** @param name of the lease or member that the step was about */
export const stepResult = (name: string, outcome: StepOutcome, atMs: number): StepResult => {
  switch (outcome.kind) {
    case "swap":
      return changeResult(outcome);
    case "lease":
      return leaseResult(name, outcome, atMs);
    case "member":
      return memberResult(name, outcome);
  }
};
