import {
  DuplicateMemberError,
  FencedError,
  type FencingToken,
  KrabkaError,
  type MemberId,
  type Role,
} from "@krabka/core";

/**
 * Why a leadership ended.
 *
 * - `fenced`: the broker refused the pair, or this side had to give it up because an answer was lost.
 * - `expired`: the lease ran out before a renewal was acknowledged.
 * - `resigned`: `resign`, `close` or `transferTo` was called.
 * - `evicted`: the log shows a later leader.
 * - `closed`: the client was closed.
 * - `handler-failed`: the handler of a campaign threw.
 */
export type LossReason = "fenced" | "expired" | "resigned" | "evicted" | "closed" | "handler-failed";

export interface Loss {
  readonly reason: LossReason;
  readonly error: KrabkaError;
}

interface Identity {
  readonly role: Role;
  readonly member: MemberId;
  readonly token: FencingToken;
}

export const Loss = {
  fenced: (who: Identity, cause: unknown): Loss => ({
    reason: "fenced",
    error: new FencedError(`The broker refused the pair of ${who.member} for role ${who.role} (token ${who.token})`, {
      ...who,
      cause,
    }),
  }),
  /** The pair is given up by this side: an answer was lost, and the backend cannot take a new epoch of its own pair. */
  givenUp: (who: Identity, why: string): Loss => ({
    reason: "fenced",
    error: new FencedError(
      `${who.member} gave up its pair for role ${who.role} after an answer was lost (token ${who.token}): ${why}`,
      who,
    ),
  }),
  evicted: (who: Identity, later: { member: MemberId; token: FencingToken }): Loss => ({
    reason: "evicted",
    error:
      later.member === who.member
        ? new DuplicateMemberError(
            `Another process took role ${who.role} over under the same member id ${who.member} (token ${later.token}); every process needs its own id`,
            who,
          )
        : new FencedError(`${later.member} leads role ${who.role} with the later token ${later.token}`, who),
  }),
  ended: (
    who: Identity,
    reason: "expired" | "resigned" | "closed" | "handler-failed",
    why: string,
    cause?: unknown,
  ): Loss => ({
    reason,
    error: new KrabkaError("NOT_LEADER", `${who.member} no longer leads role ${who.role}: ${why}`, { ...who, cause }),
  }),
} as const;
