import { describe, expect, it } from "vitest";
import type { Command } from "../src/state/command.js";
import { State } from "../src/state/state.js";
import { transition } from "../src/state/transition.js";

const apply = (state: State, command: Command, atMs: number): boolean => {
  const { outcome, changes } = transition(state, command, atMs);
  if (changes.length > 0) state.commit(changes, atMs, 0);
  return outcome.success;
};

describe("A transition", () => {
  it("holds a lease live before its deadline and free from it on, also if no expiry was recorded", () => {
    const acquire = (owner: string) => ({ kind: "acquire", lease: "l", owner, ttlMs: 10 }) as const;
    const state = new State();
    expect(apply(state, acquire("a"), 0)).toBe(true);
    const renewal = { kind: "renew", lease: "l", owner: "a", epoch: state.lease("l")?.epoch ?? 0n, ttlMs: 10 } as const;
    expect(transition(state, renewal, 9).outcome.success).toBe(true);
    expect(transition(state, renewal, 10).outcome.success).toBe(false);
    expect(transition(state, acquire("b"), 9).outcome.success).toBe(false);
    expect(transition(state, acquire("b"), 10).outcome.success).toBe(true);
  });

  it("leaves the state alone: only a commit changes it", () => {
    const state = new State();
    const { changes } = transition(state, { kind: "join", member: "m", epoch: 1n }, 0);
    expect(changes).toHaveLength(1);
    expect(state.member("m")).toBeUndefined();
    expect(state.revision).toBe(0n);
  });

  it("shows every step of a batch the state before it", () => {
    const state = new State();
    apply(state, { kind: "acquire", lease: "l", owner: "a", ttlMs: 10 }, 0);
    const epoch = state.lease("l")?.epoch ?? 0n;
    const release = { kind: "release", lease: "l", owner: "a", epoch } as const;
    const swap = {
      kind: "swap",
      key: "k",
      expected: undefined,
      replacement: new Uint8Array(1),
      expectedVersion: undefined,
      holding: { leaseId: "l", epoch },
    } as const;
    expect(apply(state, { kind: "batch", steps: [release, swap] }, 1)).toBe(true);
    expect(state.lease("l")).toBeUndefined();
    expect(state.coordinate("k")).toBeDefined();
  });
});
