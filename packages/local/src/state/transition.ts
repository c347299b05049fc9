import type { Command, Outcome, Step, StepOutcome } from "./command.js";
import { decideSwap } from "./coordinates.js";
import { decideLease } from "./leases.js";
import { decideMember, expireMembers } from "./membership.js";
import type { Change, StateView } from "./model.js";

/** What a command does to a state: what its caller is told, and what changes. */
export interface Transition {
  readonly outcome: Outcome;
  /** Empty when nothing changes; such a command is not worth a record. */
  readonly changes: readonly Change[];
}

/**
 * Decides a command. Pure: the same view, command and instant give the same transition, today and at every replay.
 *
 * @param atMs service time, never before that of an earlier command.
 */
export function transition(view: StateView, command: Command, atMs: number): Transition {
  switch (command.kind) {
    case "batch":
      return decideBatch(view, command.steps, atMs);
    case "expire":
      return { outcome: DONE, changes: [...expireLeases(view, atMs), ...expireMembers(view, command.timings, atMs)] };
    case "open": {
      if (command.raiseBy < 0n) throw new Error(`counters never fall back, but are to be raised by ${command.raiseBy}`);
      const history = { id: command.historyId, after: view.revision, from: view.revision + command.raiseBy + 1n };
      return { outcome: DONE, changes: [{ kind: "history", after: history }] };
    }
    default:
      return decideStep(view, command, atMs);
  }
}

const DONE = { kind: "done", success: true } as const;

const decideStep = (
  view: StateView,
  step: Step,
  atMs: number,
): { readonly outcome: StepOutcome; readonly changes: readonly Change[] } => {
  switch (step.kind) {
    case "swap":
      return decideSwap(view, step, atMs);
    case "acquire":
    case "renew":
    case "release":
      return decideLease(view, step, atMs);
    default:
      return decideMember(view, step, atMs);
  }
};

const expireLeases = (view: StateView, atMs: number): readonly Change[] => {
  const changes: Change[] = [];
  for (const [name, lease] of view.leases()) {
    if (lease.expiresAtMs <= atMs) changes.push({ kind: "lease", name, after: undefined });
  }
  return changes;
};

/** What a step may change. Steps of one batch share a revision, so two for the same would give out a version or epoch twice. */
export const touches = (step: Step): string => {
  switch (step.kind) {
    case "swap":
      return `coordinate ${step.key}`;
    case "acquire":
    case "renew":
    case "release":
      return `lease ${step.lease}`;
    default:
      return `member ${step.member}`;
  }
};

/** All or nothing. Every step sees the state before the batch. */
const decideBatch = (view: StateView, steps: readonly Step[], atMs: number): Transition => {
  const touched = new Set(steps.map(touches));
  if (touched.size < steps.length) throw new Error("a batch has two steps for one key, lease or member");
  const decisions = steps.map((step) => decideStep(view, step, atMs));
  const outcomes = decisions.map(({ outcome }) => outcome);
  if (!outcomes.every(({ success }) => success))
    return { outcome: { kind: "batch", success: false, outcomes }, changes: [] };
  return { outcome: { kind: "batch", success: true, outcomes }, changes: decisions.flatMap(({ changes }) => changes) };
};
