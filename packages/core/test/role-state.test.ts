import { type CoordinationRecord, type Lease, MAX_INT64, MemberId, NO_ATTRIBUTES, Role, RoleState } from "@krabka/core";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { history, MEMBERS, ROLE, type Truth } from "./role-history.js";

const [A, B, C, D] = MEMBERS as [MemberId, MemberId, MemberId, MemberId];

const visible = (state: RoleState) => ({ roster: state.roster, lease: state.lease });

const told = (state: RoleState): Truth => ({
  roster: state.roster.map(({ member, joinOffset }) => [member, joinOffset] as const),
  lease: state.lease && {
    member: state.lease.member,
    token: String(state.lease.token),
    deadlineMs: state.lease.deadlineMs,
    offset: state.lease.offset,
  },
});

const registered = (offset: bigint, member: MemberId): CoordinationRecord => ({
  kind: "registration",
  role: ROLE,
  member,
  registeredAtMs: offset * 1000n,
  attributes: NO_ATTRIBUTES,
  offset,
});
const left = (offset: bigint, member: MemberId): CoordinationRecord => ({
  kind: "registration-removed",
  role: ROLE,
  member,
  offset,
});
const lease = (
  offset: bigint,
  member: MemberId,
  [producerId, epoch]: readonly [bigint, number],
  term?: bigint,
  part: Partial<Lease> = {},
): CoordinationRecord => ({
  kind: "lease",
  role: ROLE,
  member,
  pair: { producerId, epoch },
  term,
  grantedAtMs: 0n,
  deadlineMs: offset * 1000n,
  attributes: NO_ATTRIBUTES,
  ...part,
  offset,
});
const leaseRemoved = (offset: bigint): CoordinationRecord => ({ kind: "lease-removed", role: ROLE, offset });

const holder = (...records: CoordinationRecord[]) => {
  // Every order of a handful of records must give one answer.
  const answers = new Set<string>();
  const permute = (rest: readonly CoordinationRecord[], taken: readonly CoordinationRecord[]): void => {
    if (rest.length === 0) {
      const { lease } = RoleState.fold(ROLE, taken);
      answers.add(lease === undefined ? "none" : `${lease.member} ${lease.token} @${lease.offset}`);
    }
    rest.forEach((record, i) => {
      permute([...rest.slice(0, i), ...rest.slice(i + 1)], [...taken, record]);
    });
  };
  permute(records, []);
  return [...answers].join(" | ");
};

/** Records with no sense between them: any kind, any pair, any term, each at its own offset. */
const senseless = fc
  .array(
    fc.record({
      kind: fc.constantFrom("registration", "registration-removed", "lease", "lease", "lease", "lease-removed"),
      member: fc.constantFrom(...MEMBERS),
      producerId: fc.constantFrom(1n, 2n, 3n),
      epoch: fc.integer({ min: 0, max: 2 }),
      term: fc.option(fc.bigInt({ min: 0n, max: 20n }), { nil: undefined }),
      role: fc.constantFrom(ROLE, ROLE, ROLE, Role.of("dispatcher")),
    }),
    { maxLength: 20 },
  )
  .map((drafts) =>
    drafts.map(({ kind, member, producerId, epoch, term, role }, i): CoordinationRecord => {
      const offset = BigInt(i);
      if (kind === "registration") return { ...registered(offset, member), role };
      if (kind === "registration-removed") return { ...left(offset, member), role };
      if (kind === "lease-removed") return { ...leaseRemoved(offset), role };
      return { ...lease(offset, member, [producerId, epoch], term), role };
    }),
  );
const anyRecords = fc.oneof(
  senseless,
  history({ foreign: true, removals: true }).map(({ records }) => records),
);

describe("folding", () => {
  it("gives the same state for any order of arrival, also with records that come twice", () => {
    const shuffled = anyRecords.chain((records) =>
      fc.tuple(
        fc.constant(records),
        fc.shuffledSubarray([...records], { minLength: records.length }),
        fc.shuffledSubarray([...records]),
      ),
    );
    fc.assert(
      fc.property(shuffled, ([records, inAnyOrder, again]) => {
        const expected = visible(RoleState.fold(ROLE, records));
        expect(visible(RoleState.fold(ROLE, inAnyOrder))).toEqual(expected);
        expect(visible(RoleState.fold(ROLE, [...again, ...inAnyOrder]))).toEqual(expected);
      }),
      { numRuns: 3000 },
    );
  });

  it("in steps of any size gives the same state as folding all at once", () => {
    const split = anyRecords.chain((records) =>
      fc.tuple(fc.constant(records), fc.array(fc.nat(records.length), { maxLength: 6 })),
    );
    fc.assert(
      fc.property(split, ([records, cuts]) => {
        let state = RoleState.empty(ROLE);
        let from = 0;
        for (const to of [...cuts.sort((a, b) => a - b), records.length]) {
          state = state.fold(records.slice(from, to));
          from = to;
        }
        expect(visible(state)).toEqual(visible(RoleState.fold(ROLE, records)));
      }),
      { numRuns: 2000 },
    );
  });

  it("tells the truth about every history that a log can hold", () => {
    fc.assert(
      fc.property(history({ foreign: true, removals: true }), ({ records, truth }) => {
        expect(told(RoleState.fold(ROLE, records))).toEqual(truth);
      }),
      { numRuns: 5000 },
    );
  });

  it("tells the same from a compacted log as from the whole one", () => {
    const compacted = history({ foreign: false, removals: false })
      .filter(({ lastLeaseIsTrue }) => lastLeaseIsTrue)
      .chain(({ records, truth }) => {
        // Compaction may have dropped any record but the newest of its key.
        const keyOf = (record: CoordinationRecord) =>
          `${record.role} ${"member" in record && record.kind !== "lease" ? record.member : ""}`;
        const newest = new Map(records.map((record) => [keyOf(record), record]));
        const keep = new Set(newest.values());
        return fc.tuple(
          fc.constant(truth),
          fc
            .subarray([...records])
            .map((kept) => records.filter((record) => keep.has(record) || kept.includes(record))),
        );
      });
    fc.assert(
      fc.property(compacted, ([truth, records]) => {
        expect(told(RoleState.fold(ROLE, records))).toEqual(truth);
      }),
      { numRuns: 1000 },
    );
  });

  it("leaves the state it started from as it was", () => {
    const before = RoleState.fold(ROLE, [registered(1n, A), lease(2n, A, [1n, 0])]);
    const snapshot = structuredClone(told(before));
    const after = before.fold([registered(3n, B), left(4n, A), lease(5n, B, [1n, 1]), leaseRemoved(6n)]);
    expect(told(before)).toEqual(snapshot);
    expect(told(after)).toEqual({ roster: [[B, 3n]], lease: undefined });
  });

  it("gives the same object when nothing changed", () => {
    const records = [registered(1n, A), lease(2n, A, [1n, 3]), left(3n, B), leaseRemoved(1n)];
    const state = RoleState.fold(ROLE, records);
    expect(state.fold([])).toBe(state);
    expect(state.fold(records)).toBe(state);
    expect(state.fold([lease(9n, B, [1n, 2])])).toBe(state);
    expect(state.fold([{ ...registered(9n, B), role: Role.of("dispatcher") }])).toBe(state);
    expect(state.fold([lease(9n, A, [1n, 3], 2n)]).roster).toBe(state.roster);
  });

  it("ignores records of other roles", () => {
    const role = Role.of("dispatcher");
    const state = RoleState.fold(ROLE, [
      { ...registered(1n, A), role },
      { ...lease(2n, A, [1n, 1]), role },
    ]);
    expect(told(state)).toEqual({ roster: [], lease: undefined });
    const known = state.fold([registered(3n, A), lease(4n, A, [1n, 1])]);
    expect(
      known.fold([
        { ...left(5n, A), role },
        { ...leaseRemoved(6n), role },
      ]),
    ).toBe(known);
  });
});

describe("the roster", () => {
  const names = (...records: CoordinationRecord[]) => RoleState.fold(ROLE, records).roster.map(({ member }) => member);

  it("is in the order of registration", () => {
    expect(names(registered(1n, C), registered(2n, A), registered(7n, B))).toEqual([C, A, B]);
  });

  it("puts a member that registers again at the tail, also when its old registration is still there", () => {
    expect(names(registered(1n, A), registered(2n, B), registered(3n, A))).toEqual([B, A]);
    expect(names(registered(1n, A), registered(2n, B), left(3n, A), registered(4n, A))).toEqual([B, A]);
  });

  it("forgets nobody's tombstone: a registration from before it stays removed", () => {
    expect(names(left(3n, A), registered(1n, A))).toEqual([]);
    expect(names(left(3n, A), registered(4n, A))).toEqual([A]);
  });

  it("orders by offsets beyond the exact integers of JavaScript", () => {
    expect(names(registered(2n ** 53n + 1n, A), registered(2n ** 53n, B))).toEqual([B, A]);
  });

  it("keeps what the registration said", () => {
    const attributes = { address: "10.0.0.1:8080" };
    const state = RoleState.fold(ROLE, [{ ...registered(5n, A), attributes } as CoordinationRecord]);
    expect(state.registrationOf(A)).toEqual({ member: A, joinOffset: 5n, registeredAtMs: 5000n, attributes });
    expect(state.registrationOf(B)).toBeUndefined();
    expect(state.fold([left(6n, A)]).registrationOf(A)).toBeUndefined();
  });
});

describe("the lease", () => {
  it("carries what its newest record says, with the term of its grant", () => {
    const attributes = { address: "10.0.0.1:8080" };
    const renewal = lease(9n, A, [4242n, 7], 5n, { grantedAtMs: 8_000n, deadlineMs: 38_000n, attributes });
    const state = RoleState.fold(ROLE, [lease(5n, A, [4242n, 7]), { ...renewal, appendedAtMs: 8_100 }]);
    expect(state.lease).toMatchObject({
      member: A,
      grantedAtMs: 8_000n,
      deadlineMs: 38_000n,
      attributes,
      offset: 9n,
      appendedAtMs: 8_100,
    });
    expect(String(state.lease?.token)).toBe("5:4242:7");
  });

  it("takes the offset of the first record as term where renewals carry no header", () => {
    expect(holder(lease(5n, A, [1n, 0]), lease(6n, A, [1n, 0]), lease(9n, A, [1n, 0]))).toBe("a 5:1:0 @9");
  });

  it("takes the header's term where the grant was compacted away", () => {
    expect(holder(lease(9n, A, [1n, 0], 5n))).toBe("a 5:1:0 @9");
  });

  it("goes to a later term with a lower producer id (A4)", () => {
    expect(holder(lease(40n, A, [2001n, 5]), lease(58n, B, [1003n, 0]))).toBe("b 58:1003:0 @58");
  });

  it("is not shaken by the late renewal of a zombie, under a left id or an older epoch", () => {
    expect(holder(lease(40n, A, [2001n, 5]), lease(58n, B, [1003n, 0]), lease(60n, A, [2001n, 5], 40n))).toBe(
      "b 58:1003:0 @58",
    );
    expect(holder(lease(40n, A, [1n, 5]), lease(58n, B, [1n, 6]), lease(60n, A, [1n, 5], 40n))).toBe("b 58:1:6 @58");
    expect(holder(lease(40n, A, [1n, 5]), lease(58n, B, [1n, 6]), lease(60n, A, [1n, 5]))).toBe("b 58:1:6 @58");
  });

  it("follows a zombie's renewal that lies before the rival's grant", () => {
    expect(holder(lease(40n, A, [1n, 5]), lease(45n, A, [1n, 5], 40n))).toBe("a 40:1:5 @45");
    expect(holder(lease(40n, A, [1n, 5]), lease(45n, A, [1n, 5], 40n), lease(46n, B, [1n, 6]))).toBe("b 46:1:6 @46");
  });

  it("goes back to a holder that was overtaken by a stale grant once it grants anew under a new epoch", () => {
    const overtaken = [lease(40n, B, [1003n, 0]), lease(41n, A, [2001n, 5])];
    expect(holder(...overtaken)).toBe("a 41:2001:5 @41");
    expect(holder(...overtaken, lease(42n, B, [1003n, 1]))).toBe("b 42:1003:1 @42");
  });

  it("takes a second record without a term under one pair for a renewal, until a record states another term", () => {
    const overtaken = [lease(40n, B, [1003n, 0]), lease(41n, A, [2001n, 5]), lease(42n, B, [1003n, 0])];
    expect(holder(...overtaken)).toBe("a 41:2001:5 @41");
    expect(holder(...overtaken, lease(43n, B, [1003n, 0], 42n))).toBe("b 42:1003:0 @43");
    expect(holder(...overtaken, lease(43n, B, [1003n, 0], 42n), lease(44n, B, [1003n, 0]))).toBe("b 42:1003:0 @44");
  });

  it("may name another member under the holder's own token: a transfer", () => {
    expect(holder(lease(40n, A, [1n, 5]), lease(45n, B, [1n, 5], 40n))).toBe("b 40:1:5 @45");
  });

  it("ends with a tombstone, and an older reign that writes after that does not come back", () => {
    expect(holder(lease(40n, A, [1n, 5]), leaseRemoved(41n))).toBe("none");
    expect(holder(lease(40n, A, [1n, 5]), leaseRemoved(41n), lease(42n, A, [1n, 5], 40n))).toBe("a 40:1:5 @42");
    expect(holder(lease(40n, A, [1n, 5]), leaseRemoved(41n), lease(42n, B, [1n, 6]))).toBe("b 42:1:6 @42");
    const zombie = lease(60n, A, [2001n, 5], 40n);
    expect(holder(lease(40n, A, [2001n, 5]), lease(58n, B, [1003n, 0]), leaseRemoved(59n), zombie)).toBe("none");
  });

  it("takes no term ahead of its own record, as one left from a topic that was created anew", () => {
    expect(holder(lease(3n, A, [1n, 5], 900n))).toBe("a 3:1:5 @3");
    expect(holder(lease(3n, A, [1n, 5], MAX_INT64), lease(4n, B, [7n, 0]))).toBe("b 4:7:0 @4");
    expect(holder(lease(3n, A, [1n, 5], 900n), lease(4n, B, [7n, 0]), lease(5n, A, [1n, 5], 900n))).toBe("b 4:7:0 @4");
  });
});

describe("ranks", () => {
  const roster = [registered(1n, A), registered(2n, B), registered(3n, C)];
  const ranks = (...records: CoordinationRecord[]) => {
    const state = RoleState.fold(ROLE, [...roster, ...records]);
    return MEMBERS.map((member) => state.rankOf(member));
  };

  it("are the places in the roster where there is no lease", () => {
    expect(ranks()).toEqual([0, 1, 2, undefined]);
  });

  it("are 0 for the holder, and for the others the places in the roster without it", () => {
    expect(ranks(lease(9n, A, [1n, 0]))).toEqual([0, 0, 1, undefined]);
    expect(ranks(lease(9n, B, [1n, 0]))).toEqual([0, 0, 1, undefined]);
    expect(ranks(lease(9n, C, [1n, 0]))).toEqual([0, 1, 0, undefined]);
  });

  it("do not depend on whether the lease is live", () => {
    expect(ranks(lease(9n, C, [1n, 0], undefined, { deadlineMs: -1n }))).toEqual([0, 1, 0, undefined]);
  });

  it("are 0 for a holder outside the roster, which takes nobody's place there", () => {
    expect(ranks(lease(9n, D, [1n, 0]))).toEqual([0, 1, 2, 0]);
    expect(RoleState.empty(ROLE).rankOf(A)).toBeUndefined();
  });

  it("follow from roster and lease alone in every history", () => {
    fc.assert(
      fc.property(history({ foreign: true, removals: true }), ({ records, truth }) => {
        const state = RoleState.fold(ROLE, records);
        const others = truth.roster.map(([member]) => member).filter((member) => member !== truth.lease?.member);
        for (const member of [...MEMBERS, MemberId.of("stranger")]) {
          const index = others.indexOf(member);
          const expected = member === truth.lease?.member ? 0 : index === -1 ? undefined : index;
          expect(state.rankOf(member)).toBe(expected);
        }
      }),
    );
  });
});
