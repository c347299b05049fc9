import {
  type Attributes,
  type Clock,
  type FencingToken,
  MAX_TIMER_MS,
  type MemberId,
  type Role,
  type RosterEntry,
} from "@krabka/core";
import { type Limit, pause } from "./limits.js";
import type { RoleView } from "./role-view.js";

/** A role as an observer sees it. For display and routing; never an answer to "who may write". */
export interface Observation {
  readonly role: Role;
  /** The holder of a lease that has not run out, or undefined: nobody, or not for now. */
  readonly leader:
    | {
        readonly member: MemberId;
        readonly token: FencingToken;
        readonly attributes: Attributes;
        /** On the leader's wall clock, ms since 1970. */
        readonly deadlineMs: bigint;
      }
    | undefined;
  /**
   * Registered members in join order. As a rule the leader is among them; not if a rival that lost the race for the role
   * removed its registration.
   */
  readonly roster: readonly RosterEntry[];
}

const NOBODY = { entry: undefined, registeredAtMonotonicMs: 0 };

/**
 * Yields the current observation first and then one after each change, until the limit is reached. A slow reader misses
 * intermediate observations, never the last one.
 */
export async function* observations(
  view: RoleView,
  clock: Clock,
  limit: Limit,
): AsyncGenerator<Observation, void, void> {
  let wake = new AbortController();
  const stopWatching = view.onChange(() => wake.abort());
  const onLimit = () => wake.abort();
  limit.signal.addEventListener("abort", onLimit);
  let last: Observation | undefined;
  try {
    await view.sync({ signal: limit.signal });
    while (!limit.signal.aborted) {
      if (view.failure !== undefined) throw view.failure;
      wake = new AbortController();
      const nowMs = view.watch.nowMs(view.state, NOBODY);
      if (view.isCurrent) {
        const current = observe(view, nowMs);
        if (last === undefined || !isSame(last, current)) {
          last = current;
          yield current;
          continue;
        }
      }
      const deadlineMs = last?.leader?.deadlineMs;
      await pause(clock, deadlineMs === undefined ? MAX_TIMER_MS : Number(deadlineMs - nowMs), wake.signal);
    }
  } catch (error) {
    if (!limit.signal.aborted) throw error;
  } finally {
    limit.signal.removeEventListener("abort", onLimit);
    stopWatching();
    view.close();
    limit.dispose();
  }
}

const observe = (view: RoleView, nowMs: bigint): Observation => {
  const { role, lease, roster } = view.state;
  if (lease === undefined || nowMs >= lease.deadlineMs) return { role, leader: undefined, roster };
  const { member, token, attributes, deadlineMs } = lease;
  return { role, leader: { member, token, attributes, deadlineMs }, roster };
};

const isSame = (a: Observation, b: Observation): boolean =>
  a.roster === b.roster &&
  a.leader?.member === b.leader?.member &&
  a.leader?.deadlineMs === b.leader?.deadlineMs &&
  (a.leader === undefined || b.leader === undefined || a.leader.token.equals(b.leader.token));
