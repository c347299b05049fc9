import {
  type CoordinationRecord,
  type Decision,
  LeaseConfig,
  MAX_INT64,
  type MemberId,
  MIN_INT64,
  NO_ATTRIBUTES,
  RoleState,
  Succession,
} from "@krabka/core";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { int64 } from "./arbitraries.js";
import { history, MEMBERS, ROLE } from "./role-history.js";

const [A, B, C, D] = MEMBERS as [MemberId, MemberId, MemberId, MemberId];
const config = LeaseConfig.of({ leaseMs: 30_000, staggerMs: 5_000 });

const registered = (offset: bigint, member: MemberId, registeredAtMs: bigint): CoordinationRecord => ({
  kind: "registration",
  role: ROLE,
  member,
  registeredAtMs,
  attributes: NO_ATTRIBUTES,
  offset,
});
const leaseOf = (member: MemberId, deadlineMs: bigint): CoordinationRecord => ({
  kind: "lease",
  role: ROLE,
  member,
  pair: { producerId: 1n, epoch: 0 },
  term: undefined,
  grantedAtMs: 0n,
  deadlineMs,
  attributes: NO_ATTRIBUTES,
  offset: 100n,
});
/** The members in the given order, registered at 1000 ms, 2000 ms and so on, and a lease or none. */
const stateOf = (members: readonly MemberId[], ...leases: CoordinationRecord[]) =>
  RoleState.fold(ROLE, [
    ...members.map((member, i) => registered(BigInt(i), member, BigInt(i + 1) * 1_000n)),
    ...leases,
  ]);

const ask = (state: RoleState, member: MemberId, nowMs: bigint): Decision =>
  Succession.evaluate(state, member, nowMs, config);
const hold = (untilMs: bigint): Decision => ({ kind: "HOLD", untilMs });
const challenge = (rank: number, sinceMs: bigint): Decision => ({ kind: "CHALLENGE", rank, sinceMs });
const wait = (rank: number, waitUntilMs: bigint): Decision => ({ kind: "WAIT", rank, waitUntilMs });

describe("a member that is not in the roster", () => {
  it("is told to register, with no lease, a rival's or its own", () => {
    const none: Decision = { kind: "NOT_REGISTERED" };
    expect(ask(RoleState.empty(ROLE), A, 0n)).toEqual(none);
    expect(ask(stateOf([B], leaseOf(B, 50_000n)), A, 60_000n)).toEqual(none);
    expect(ask(stateOf([B], leaseOf(A, 50_000n)), A, 49_999n)).toEqual(none);
    expect(ask(stateOf([B], leaseOf(A, 50_000n)), A, 50_000n)).toEqual(none);
  });

  it("still orders the others when it holds the lease", () => {
    const state = stateOf([A, B], leaseOf(D, 50_000n));
    expect(ask(state, A, 50_000n)).toEqual(challenge(0, 50_000n));
    expect(ask(state, B, 50_000n)).toEqual(wait(1, 55_000n));
  });
});

describe("with a lease", () => {
  const state = stateOf([A, B, C, D], leaseOf(B, 50_000n));

  it("its holder holds until one millisecond before the deadline, and may reclaim at the deadline", () => {
    expect(ask(state, B, 49_999n)).toEqual(hold(50_000n));
    expect(ask(state, B, 50_000n)).toEqual(challenge(0, 50_000n));
    expect(ask(state, B, 10_000_000n)).toEqual(challenge(0, 50_000n));
    expect(ask(state, B, MIN_INT64)).toEqual(hold(50_000n));
  });

  it.each([
    [A, 0, 50_000n],
    [C, 1, 55_000n],
    [D, 2, 60_000n],
  ])("%s waits with rank %d and challenges from %d on, no millisecond earlier", (member, rank, turn) => {
    expect(ask(state, member, 0n)).toEqual(wait(rank, turn));
    expect(ask(state, member, turn - 1n)).toEqual(wait(rank, turn));
    expect(ask(state, member, turn)).toEqual(challenge(rank, turn));
    expect(ask(state, member, turn + 1n)).toEqual(challenge(rank, turn));
  });

  it("a candidate honours the deadline in the record, whatever its own lease length (E3)", () => {
    const own = LeaseConfig.of({ leaseMs: 5_000, staggerMs: 5_000 });
    expect(Succession.evaluate(state, C, 54_999n, own)).toEqual(wait(1, 55_000n));
  });

  it("a release with a deadline in the past makes the ranks stagger from there", () => {
    const released = stateOf([A, B, C], leaseOf(A, 97_500n));
    expect(ask(released, B, 100_000n)).toEqual(challenge(0, 97_500n));
    expect(ask(released, C, 100_000n)).toEqual(wait(1, 102_500n));
  });
});

describe("without a lease", () => {
  const state = stateOf([A, B, C]);

  it("rank 0 challenges at once, also when its clock was set back behind its registration", () => {
    expect(ask(state, A, 1_000n)).toEqual(challenge(0, 1_000n));
    expect(ask(state, A, 999n)).toEqual(challenge(0, 1_000n));
    expect(ask(state, A, 9_999_999n)).toEqual(challenge(0, 1_000n));
  });

  it("rank n challenges n staggers after its own registration, no millisecond earlier", () => {
    expect(ask(state, B, 2_000n)).toEqual(wait(1, 7_000n));
    expect(ask(state, B, 6_999n)).toEqual(wait(1, 7_000n));
    expect(ask(state, B, 7_000n)).toEqual(challenge(1, 7_000n));
    expect(ask(state, C, 3_000n)).toEqual(wait(2, 13_000n));
    expect(ask(state, C, 12_999n)).toEqual(wait(2, 13_000n));
    expect(ask(state, C, 13_000n)).toEqual(challenge(2, 13_000n));
  });

  it("a standby behind a dead rank 0 gets its turn although it evaluates all the time", () => {
    const asked: string[] = [];
    for (let nowMs = 2_000n; nowMs <= 7_000n; nowMs += 500n) asked.push(ask(state, B, nowMs).kind);
    expect(asked).toEqual([...Array<string>(10).fill("WAIT"), "CHALLENGE"]);
  });

  it("a removed lease counts as none", () => {
    const removed = stateOf([A, B], leaseOf(A, 50_000n), { kind: "lease-removed", role: ROLE, offset: 101n });
    expect(ask(removed, B, 6_999n)).toEqual(wait(1, 7_000n));
    expect(ask(removed, A, 1_000n)).toEqual(challenge(0, 1_000n));
  });
});

describe("at the bounds of int64", () => {
  it("sums saturate and stay int64", () => {
    const late = stateOf([A, B, C], leaseOf(A, MAX_INT64));
    expect(ask(late, A, MAX_INT64 - 1n)).toEqual(hold(MAX_INT64));
    expect(ask(late, C, MAX_INT64 - 1n)).toEqual(wait(1, MAX_INT64));
    expect(ask(late, C, MAX_INT64)).toEqual(challenge(1, MAX_INT64));
    const nearly = stateOf([A, B, C], leaseOf(A, MAX_INT64 - 4_999n));
    expect(ask(nearly, C, 0n)).toEqual(wait(1, MAX_INT64));
    const justBelow = stateOf([A, B, C], leaseOf(A, MAX_INT64 - 5_001n));
    expect(ask(justBelow, C, 0n)).toEqual(wait(1, MAX_INT64 - 1n));
  });

  it("an instant before all time is long past", () => {
    const early = stateOf([A, B, C], leaseOf(A, MIN_INT64));
    expect(ask(early, A, MIN_INT64)).toEqual(challenge(0, MIN_INT64));
    expect(ask(early, C, MIN_INT64)).toEqual(wait(1, MIN_INT64 + 5_000n));
    expect(ask(early, C, 0n)).toEqual(challenge(1, MIN_INT64 + 5_000n));
  });

  it("the largest stagger is multiplied exactly", () => {
    const state = stateOf([A, B, C, D], leaseOf(A, 1n));
    expect(Succession.evaluate(state, D, 0n, { staggerMs: 2 ** 31 - 1 })).toEqual(wait(2, 4_294_967_295n));
  });
});

describe("in every state", () => {
  const state = fc
    .tuple(history({ foreign: true, removals: true }), int64, fc.option(int64))
    .map(([{ records }, registeredAtMs, deadlineMs]) =>
      RoleState.fold(
        ROLE,
        records.map((record): CoordinationRecord => {
          // Half of the states have instants from all of int64.
          if (deadlineMs === null) return record;
          if (record.kind === "registration") return { ...record, registeredAtMs };
          return record.kind === "lease" ? { ...record, deadlineMs } : record;
        }),
      ),
    );
  const question = fc.record({
    state,
    member: fc.constantFrom(...MEMBERS),
    nowMs: fc.oneof(int64, fc.bigInt({ min: 0n, max: 8_000n })),
    staggerMs: fc.oneof(fc.integer({ min: 1, max: 2 ** 31 - 1 }), fc.integer({ min: 1, max: 500 })),
  });
  const changesAt = (decision: Decision): bigint | undefined =>
    decision.kind === "WAIT" ? decision.waitUntilMs : decision.kind === "HOLD" ? decision.untilMs : undefined;

  it("the answer stays the same up to the instant it names and is a challenge from that instant on", () => {
    fc.assert(
      fc.property(question, int64, ({ state, member, nowMs, staggerMs }, laterMs) => {
        const at = (instant: bigint) => Succession.evaluate(state, member, instant, { staggerMs });
        const now = at(nowMs);
        const changeMs = changesAt(now);
        if (changeMs === undefined) {
          if (laterMs >= nowMs) expect(at(laterMs)).toEqual(now);
          return;
        }
        expect(changeMs).toBeGreaterThan(nowMs);
        expect(at(changeMs - 1n)).toEqual(now);
        expect(at(changeMs).kind).toBe("CHALLENGE");
        if (laterMs >= nowMs) expect(at(laterMs)).toEqual(laterMs < changeMs ? now : at(changeMs));
      }),
      { numRuns: 5000 },
    );
  });

  it("the answer is the one that the plain rules give", () => {
    const clamp = (sum: bigint) => [MIN_INT64, sum, MAX_INT64].sort((a, b) => (a < b ? -1 : 1))[1] as bigint;
    const plainly = ({ lease, roster }: RoleState, member: MemberId, nowMs: bigint, staggerMs: number): Decision => {
      const mine = roster.find((entry) => entry.member === member);
      if (mine === undefined) return { kind: "NOT_REGISTERED" };
      const isHolder = lease?.member === member;
      if (isHolder && nowMs < lease.deadlineMs) return hold(lease.deadlineMs);
      const rank = isHolder ? 0 : roster.filter((entry) => entry.member !== lease?.member).indexOf(mine);
      const turnMs = clamp((lease?.deadlineMs ?? mine.registeredAtMs) + BigInt(rank) * BigInt(staggerMs));
      const atOnce = lease === undefined && rank === 0;
      return nowMs >= turnMs || atOnce ? challenge(rank, turnMs) : wait(rank, turnMs);
    };
    fc.assert(
      fc.property(question, ({ state, member, nowMs, staggerMs }) => {
        const answer = Succession.evaluate(state, member, nowMs, { staggerMs });
        expect(answer).toEqual(plainly(state, member, nowMs, staggerMs));
      }),
      { numRuns: 5000 },
    );
  });

  it("nobody challenges a live lease", () => {
    fc.assert(
      fc.property(question, ({ state, member, nowMs, staggerMs }) => {
        if (state.lease === undefined || nowMs >= state.lease.deadlineMs) return;
        expect(Succession.evaluate(state, member, nowMs, { staggerMs }).kind).not.toBe("CHALLENGE");
      }),
      { numRuns: 2000 },
    );
  });
});
