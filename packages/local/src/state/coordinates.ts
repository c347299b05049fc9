import type { Step, SwapOutcome } from "./command.js";
import { type Change, isLive, type StateView } from "./model.js";

type Swap = Extract<Step, { kind: "swap" }>;

const sameBytes = (a: Uint8Array | undefined, b: Uint8Array | undefined): boolean =>
  a === undefined || b === undefined ? a === b : Buffer.compare(a, b) === 0;

/** Compare-and-set: replaces or deletes only what still is as the caller expects. */
export function decideSwap(
  view: StateView,
  step: Swap,
  atMs: number,
): { readonly outcome: SwapOutcome; readonly changes: readonly Change[] } {
  const found = view.coordinate(step.key);
  const refuse = (mismatch: "VALUE" | "VERSION" | "LEASE") => ({
    outcome: { kind: "swap", success: false, version: found?.version, mismatch } as const,
    changes: [],
  });
  if (step.holding !== undefined) {
    const lease = view.lease(step.holding.leaseId);
    if (!isLive(lease, atMs) || lease.epoch !== step.holding.epoch) return refuse("LEASE");
  }
  if (!sameBytes(found?.value, step.expected)) return refuse("VALUE");
  if (step.expectedVersion !== undefined && step.expectedVersion !== found?.version) return refuse("VERSION");
  if (step.replacement === undefined) {
    const changes = found === undefined ? [] : [{ kind: "coordinate", name: step.key, after: undefined } as const];
    return { outcome: { kind: "swap", success: true, version: undefined }, changes };
  }
  // The revision alone would come again in a copy restored from a backup; together with the opening it does not.
  const version = `${view.revision + 1n}@${view.history?.id ?? ""}`;
  return {
    outcome: { kind: "swap", success: true, version },
    changes: [{ kind: "coordinate", name: step.key, after: { value: step.replacement, version } }],
  };
}
