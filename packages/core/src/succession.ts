import { MAX_INT64 } from "./fencing-token.js";
import type { LeaseConfig } from "./lease-config.js";
import type { MemberId } from "./names.js";
import type { RoleState } from "./role-state.js";

/**
 * What a member should do now. Instants are ms since 1970 in the time base of `nowMs`.
 *
 * - `NOT_REGISTERED`: register first.
 * - `HOLD`: the live lease names the member, until `untilMs`.
 * - `CHALLENGE`: it is the member's turn, by the state since `sinceMs`.
 * - `WAIT`: nothing to do before `waitUntilMs`, the earliest instant at which this answer changes for this same state.
 */
export type Decision =
  | { readonly kind: "NOT_REGISTERED" }
  | { readonly kind: "HOLD"; readonly untilMs: bigint }
  | { readonly kind: "CHALLENGE"; readonly rank: number; readonly sinceMs: bigint }
  | { readonly kind: "WAIT"; readonly rank: number; readonly waitUntilMs: bigint };

const NOT_REGISTERED: Decision = { kind: "NOT_REGISTERED" };

/** Nothing is ever subtracted from an instant, so only the upper bound of int64 can be passed. */
const saturated = (sum: bigint): bigint => (sum > MAX_INT64 ? MAX_INT64 : sum);

/**
 * Decides by the state alone, without I/O.
 *
 * Live is `now < deadline`, challenge is `now >= deadline + rank * stagger`: no gap and no overlap. With no lease the
 * anchor is the member's own registration instant, and rank 0 goes at once, even if its clock was set back behind that
 * instant. The anchor comes from the state and never from `nowMs`: an anchor of
 * "now + rank * stagger" would move on with each evaluation, and a standby behind a dead rank 0 would wait for ever.
 * The stagger saves epochs and nothing else: if all standbys challenge at once, exactly one has the newest epoch.
 */
export const Succession = {
  evaluate(state: RoleState, member: MemberId, nowMs: bigint, config: Pick<LeaseConfig, "staggerMs">): Decision {
    const registration = state.registrationOf(member);
    if (registration === undefined) return NOT_REGISTERED;
    const { lease } = state;
    if (lease !== undefined && lease.member === member && nowMs < lease.deadlineMs) {
      return { kind: "HOLD", untilMs: lease.deadlineMs };
    }
    const rank = state.rankOf(member) as number;
    const anchorMs = lease === undefined ? registration.registeredAtMs : lease.deadlineMs;
    const turnMs = saturated(anchorMs + BigInt(rank) * BigInt(config.staggerMs));
    if (nowMs >= turnMs || (lease === undefined && rank === 0)) return { kind: "CHALLENGE", rank, sinceMs: turnMs };
    return { kind: "WAIT", rank, waitUntilMs: turnMs };
  },
} as const;
