import type { Violation } from "./term-order.js";

export interface Reign {
  readonly leader: string;
  readonly token: string;
  /** What brought it about, such as "kill -9 of candidate-2". */
  readonly after: string;
  /** From that event to the new leader's first committed command. */
  readonly takeoverMs: number;
}

export interface Summary {
  readonly leaseMs: number;
  readonly reigns: readonly Reign[];
  readonly written: number;
  readonly dispatched: number;
  readonly zombie: { readonly believesToLead: boolean; readonly write: string; readonly dispatch: string };
  readonly logged: number;
  readonly violations: readonly Violation[];
}

/** What contradicts the promise, as sentences; empty when all is well. */
export function faultsOf(summary: Summary): readonly string[] {
  const { zombie, violations, logged, written } = summary;
  const faults = violations.map(({ partition, offset, fault }) => `partition ${partition} offset ${offset} ${fault}`);
  if (!zombie.believesToLead) faults.push("the suspended leader noticed by itself, so its refusal proves nothing");
  if (zombie.write !== "FENCED") faults.push(`the broker should have refused the stale write; it was ${zombie.write}`);
  if (zombie.dispatch !== "REFUSED")
    faults.push(`the device should have refused the stale command: ${zombie.dispatch}`);
  if (logged < written) faults.push(`${written} commands were acknowledged, but the log holds ${logged}`);
  return faults;
}

/** The summary as text for people. */
export function render(summary: Summary): string {
  const { leaseMs, reigns, written, dispatched, zombie, logged, violations } = summary;
  const rows = reigns.map(({ leader, token, after, takeoverMs }) => [
    token,
    leader,
    `${takeoverMs.toFixed(0)} ms`,
    after,
  ]);
  const refused = [
    zombie.write === "FENCED" ? "1 write by the broker" : "",
    zombie.dispatch === "REFUSED" ? "1 command by the device" : "",
  ];
  return [
    `Leaders by term (lease ${leaseMs} ms; the time runs from the event to the first command committed)`,
    ...table([["token", "leader", "took", "after"], ...rows]),
    "",
    `Commands written: ${written}, dispatched: ${dispatched}`,
    `Refused from the leader that woke up: ${refused.filter(Boolean).join(", ") || "nothing"}`,
    `Log check: ${logged} records, ${violations.length === 0 ? "no older term follows a newer one" : `${violations.length} violations`}`,
  ].join("\n");
}

const table = (rows: readonly (readonly string[])[]): readonly string[] => {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd());
};
