import type { MemberOutcome, MemberRefusal, MembershipTimings, Step } from "./command.js";
import type { Change, MemberEntry, MemberStatus, StateView } from "./model.js";

type MemberStep = Extract<Step, { kind: "join" | "heartbeat" | "suspect" | "declareDead" | "leave" }>;
type Event = Exclude<MemberStep["kind"], "join">;

/**
 * Every arrow within one epoch. What is not here does not happen: DEAD and LEFT have no arrow at all. From any status, and
 * from absence, a join with a higher epoch leads to JOINING.
 */
const ARROWS: Readonly<Record<MemberStatus, Partial<Record<Event, MemberStatus>>>> = {
  JOINING: { heartbeat: "ALIVE", suspect: "SUSPECT", leave: "LEFT", declareDead: "DEAD" },
  ALIVE: { heartbeat: "ALIVE", suspect: "SUSPECT", leave: "LEFT", declareDead: "DEAD" },
  SUSPECT: { heartbeat: "ALIVE", leave: "LEFT", declareDead: "DEAD" },
  DEAD: {},
  LEFT: {},
};

/** A repeat of what has happened already, such as a leave whose answer was lost, succeeds and changes nothing. */
const REPEATS: Readonly<Partial<Record<MemberStep["kind"], MemberStatus>>> = {
  join: "JOINING",
  suspect: "SUSPECT",
  declareDead: "DEAD",
  leave: "LEFT",
};

interface MemberDecision {
  readonly outcome: MemberOutcome;
  readonly changes: readonly Change[];
}

export function decideMember(view: StateView, step: MemberStep, atMs: number): MemberDecision {
  const found = view.member(step.member);
  if (found !== undefined && found.epoch === step.epoch && REPEATS[step.kind] === found.status) {
    return { outcome: { kind: "member", success: true, member: found }, changes: [] };
  }
  const epochToBeat = found?.epoch ?? view.forgottenEpoch;
  const refuse = (reason: MemberRefusal): MemberDecision => ({
    outcome: { kind: "member", success: false, reason, epochToBeat, member: found },
    changes: [],
  });
  const put = (member: MemberEntry): MemberDecision => ({
    outcome: { kind: "member", success: true, member },
    changes: [{ kind: "member", name: step.member, after: member }],
  });
  if (step.kind === "join") {
    if (step.epoch <= epochToBeat) return refuse("STALE_EPOCH");
    return put({ status: "JOINING", epoch: step.epoch, sinceMs: atMs, heardAtMs: atMs });
  }
  if (found === undefined || step.epoch > found.epoch) return refuse("JOIN_AGAIN");
  if (step.epoch < found.epoch) return refuse("STALE_EPOCH");
  const status = ARROWS[found.status][step.kind];
  if (status === undefined) return refuse("JOIN_AGAIN");
  return put({
    status,
    epoch: found.epoch,
    sinceMs: status === found.status ? found.sinceMs : atMs,
    heardAtMs: step.kind === "heartbeat" ? atMs : found.heardAtMs,
  });
}

/** When silence changes this member next, in service time. */
export function memberDueAtMs(member: MemberEntry, timings: MembershipTimings): number {
  switch (member.status) {
    case "JOINING":
    case "ALIVE":
      return member.heardAtMs + timings.suspectAfterMs;
    case "SUSPECT":
      return member.sinceMs + timings.deadAfterMs;
    case "DEAD":
    case "LEFT":
      return member.sinceMs + timings.forgetAfterMs;
  }
}

/**
 * What silence does: JOINING and ALIVE become SUSPECT, SUSPECT becomes DEAD; DEAD and LEFT are forgotten. One arrow at a time,
 * so that a service which was down itself does not declare a member dead without asking once more.
 */
export function expireMembers(view: StateView, timings: MembershipTimings, atMs: number): readonly Change[] {
  const changes: Change[] = [];
  let forgotten = view.forgottenEpoch;
  for (const [name, member] of view.members()) {
    if (memberDueAtMs(member, timings) > atMs) continue;
    if (member.status === "DEAD" || member.status === "LEFT") {
      if (member.epoch > forgotten) forgotten = member.epoch;
      changes.push({ kind: "member", name, after: undefined });
    } else {
      const status = member.status === "SUSPECT" ? "DEAD" : "SUSPECT";
      changes.push({ kind: "member", name, after: { ...member, status, sinceMs: atMs } });
    }
  }
  if (forgotten > view.forgottenEpoch) changes.push({ kind: "forgotten-epoch", after: forgotten });
  return changes;
}
