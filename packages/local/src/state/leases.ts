import type { LeaseOutcome, Step } from "./command.js";
import { type Change, isLive, type LeaseEntry, type StateView } from "./model.js";

type LeaseStep = Extract<Step, { kind: "acquire" | "renew" | "release" }>;

/**
 * Exclusive leases. Whoever is not the owner at the current epoch changes nothing, and an expired lease is nobody's: it is
 * neither renewed nor released, only granted anew with a higher epoch.
 */
export function decideLease(
  view: StateView,
  step: LeaseStep,
  atMs: number,
): { readonly outcome: LeaseOutcome; readonly changes: readonly Change[] } {
  const found = view.lease(step.lease);
  const held = isLive(found, atMs) ? found : undefined;
  const refusal = { outcome: { kind: "lease", success: false, holder: held }, changes: [] } as const;
  const put = (lease: LeaseEntry, after: LeaseEntry | undefined) => ({
    outcome: { kind: "lease", success: true, lease } as const,
    changes: [{ kind: "lease", name: step.lease, after } as const],
  });
  if (step.kind === "acquire") {
    if (held !== undefined) return refusal;
    const { owner, ttlMs } = step;
    const lease = { owner, epoch: view.revision + 1n, ttlMs, expiresAtMs: atMs + ttlMs };
    return put(lease, lease);
  }
  if (held === undefined || held.owner !== step.owner || held.epoch !== step.epoch) return refusal;
  if (step.kind === "release") return put({ ...held, expiresAtMs: atMs }, undefined);
  // A renewal never shortens: an answer that was promised stays true.
  const renewed = { ...held, ttlMs: step.ttlMs, expiresAtMs: Math.max(held.expiresAtMs, atMs + step.ttlMs) };
  return put(renewed, renewed);
}
