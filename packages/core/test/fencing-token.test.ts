import {
  decodeEntry,
  encodeEntry,
  FencingToken,
  type FencingTokenJson,
  MAX_INT64,
  MemberId,
  NO_ATTRIBUTES,
  Role,
  RoleState,
  samePair,
} from "@krabka/core";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { epoch, id } from "./arbitraries.js";

const token = fc.record({ term: id, producerId: id, epoch }).map((parts) => FencingToken.of(parts));
/** Few values, so that ties in each field are common. */
const tiedToken = fc
  .record({
    term: fc.bigInt({ min: 0n, max: 2n }),
    producerId: fc.constantFrom(0n, 2n ** 53n, 2n ** 53n + 1n),
    epoch: fc.integer({ min: 0, max: 2 }),
  })
  .map((parts) => FencingToken.of(parts));
const anyToken = fc.oneof(token, tiedToken);

const invalid = (message: RegExp) =>
  expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringMatching(message) });

describe("the order of tokens", () => {
  it("is total: exactly one of less, equal, greater holds, and turning the question turns the answer", () => {
    fc.assert(
      fc.property(anyToken, anyToken, (a, b) => {
        const answer = a.compareTo(b);
        expect([-1, 0, 1]).toContain(answer);
        expect(b.compareTo(a)).toBe(0 - answer);
        expect(FencingToken.compare(a, b)).toBe(answer);
        expect(answer === 0).toBe(a.toString() === b.toString());
        expect(a.equals(b)).toBe(answer === 0);
      }),
      { numRuns: 2000 },
    );
  });

  it("is transitive", () => {
    fc.assert(
      fc.property(tiedToken, tiedToken, tiedToken, (a, b, c) => {
        if (a.compareTo(b) <= 0 && b.compareTo(c) <= 0) expect(a.compareTo(c)).toBeLessThanOrEqual(0);
      }),
      { numRuns: 3000 },
    );
  });

  it("is that of term, then producer id, then epoch", () => {
    const texts = ["0:0:1", "0:1:0", "1:0:0", "1:0:2", "1:2:1", "2:0:0", "10:0:0", "10:3:32767", "10:10:0"];
    const tokens = texts.map((text) => FencingToken.parse(text));
    expect([...tokens].reverse().sort(FencingToken.compare).map(String)).toEqual(texts);
  });

  it("ranks a later term above an earlier one with a higher producer id (A4)", () => {
    const role = Role.of("controller");
    const lease = (offset: bigint, producerId: bigint, pairEpoch: number) => ({
      kind: "lease" as const,
      role,
      member: MemberId.of("m"),
      pair: { producerId, epoch: pairEpoch },
      term: undefined,
      grantedAtMs: 0n,
      deadlineMs: 1n,
      attributes: NO_ATTRIBUTES,
      offset,
    });
    const first = RoleState.fold(role, [lease(40n, 2001n, 5)]);
    const second = first.fold([lease(58n, 1003n, 0)]);
    expect(String(first.lease?.token)).toBe("40:2001:5");
    expect(String(second.lease?.token)).toBe("58:1003:0");
    expect(second.lease?.token.compareTo(first.lease?.token as FencingToken)).toBe(1);
  });

  it("keeps two ids apart that are one number in JavaScript (A8)", () => {
    const below = FencingToken.of({ term: 1n, producerId: 2n ** 53n, epoch: 0 });
    const above = FencingToken.of({ term: 1n, producerId: 2n ** 53n + 1n, epoch: 0 });
    expect(Number(below.producerId)).toBe(Number(above.producerId));
    expect(below.compareTo(above)).toBe(-1);
    expect(FencingToken.parse(String(below)).equals(FencingToken.parse(String(above)))).toBe(false);
  });
});

describe("the forms of a token", () => {
  it("come back bit for bit as text and as JSON", () => {
    fc.assert(
      fc.property(token, (it) => {
        const { term, producerId, epoch: pairEpoch } = it;
        const json: unknown = JSON.parse(JSON.stringify(it));
        for (const back of [FencingToken.parse(String(it)), FencingToken.fromJSON(json as FencingTokenJson)]) {
          expect(back).toEqual(it);
          expect([back.term, back.producerId, back.epoch]).toEqual([term, producerId, pairEpoch]);
        }
      }),
      { numRuns: 1000 },
    );
  });

  it.each([2n ** 53n - 1n, 2n ** 53n + 1n, MAX_INT64])("keep %s exactly, also through a lease record (A8)", (value) => {
    const it = FencingToken.of({ term: value - 1n, producerId: value, epoch: 32767 });
    expect(String(it)).toBe(`${value - 1n}:${value}:32767`);
    expect(JSON.stringify(it)).toBe(`{"term":"${value - 1n}","producerId":"${value}","epoch":32767}`);
    const role = Role.of("r");
    const entry = decodeEntry(
      encodeEntry({
        kind: "lease",
        role,
        member: MemberId.of("m"),
        pair: it,
        term: it.term,
        grantedAtMs: 0n,
        deadlineMs: 0n,
        attributes: NO_ATTRIBUTES,
      }),
    );
    expect(RoleState.fold(role, [{ ...entry, offset: value }]).lease?.token).toEqual(it);
  });

  it("take term 0 where the text has two parts", () => {
    const it = FencingToken.parse("9223372036854775807:7");
    expect(it).toEqual(FencingToken.of({ producerId: MAX_INT64, epoch: 7 }));
    expect(String(it)).toBe("0:9223372036854775807:7");
  });

  it.each([
    "",
    "1",
    "1:",
    ":1",
    "::",
    "1:2:3:4",
    "-1:2:3",
    "1:-2:3",
    "1:2:-3",
    "1:2:32768",
    "9223372036854775808:0:0",
    "0:9223372036854775808:0",
    "1.0:2:3",
    "1e3:2:3",
    " 1:2:3",
    "1:2:3\n",
    "0x1:2:3",
    "١:2:3",
    "1n:2n:3",
  ])("refuse the text %j", (text) => {
    expect(() => FencingToken.parse(text)).toThrow(invalid(/must be/));
  });

  it("refuse what is no text or JSON of a token, and name it", () => {
    for (const given of [undefined, null, 5, 5n, {}, Symbol("s"), Object.create(null)]) {
      expect(() => FencingToken.parse(given as string)).toThrow(invalid(/producerId:epoch in decimal digits; got/));
      expect(() => FencingToken.fromJSON(given as FencingTokenJson)).toThrow(invalid(/^term must be a string/));
    }
    const good = { term: "1", producerId: "2", epoch: 3 };
    expect(String(FencingToken.fromJSON(good))).toBe("1:2:3");
    const bad = (part: object, message: RegExp) =>
      expect(() => FencingToken.fromJSON({ ...good, ...part })).toThrow(invalid(message));
    bad({ term: 1 }, /term must be a string of decimal digits; got 1$/);
    bad({ producerId: 2 ** 53 }, /producerId must be a string of decimal digits; got 9007199254740992$/);
    bad({ epoch: "3" }, /epoch must be a number; got "3"$/);
    bad({ epoch: 1.5 }, /got "1:2:1.5"$/);
    bad({ epoch: Number.NaN }, /got "1:2:NaN"$/);
    bad({ term: "1:2" }, /got "1:2:2:3"$/);
  });
});

describe("the bounds of a token", () => {
  it("are int64 for term and id, and int16 for the epoch, from 0 on", () => {
    expect(String(FencingToken.of({ term: MAX_INT64, producerId: MAX_INT64, epoch: 32767 }))).toBe(
      "9223372036854775807:9223372036854775807:32767",
    );
    const bad = (part: object, message: RegExp) =>
      expect(() => FencingToken.of({ term: 1n, producerId: 2n, epoch: 3, ...part })).toThrow(invalid(message));
    bad({ term: -1n }, /term .* got -1n$/);
    bad({ term: MAX_INT64 + 1n }, /term .* got 9223372036854775808n$/);
    bad({ term: 1 }, /term .* got 1$/);
    bad({ term: null }, /term .* got null$/);
    bad({ producerId: -1n }, /producerId .* got -1n$/);
    bad({ producerId: MAX_INT64 + 1n }, /producerId/);
    bad({ producerId: "2" }, /producerId .* got "2"$/);
    bad({ epoch: -1 }, /epoch .* got -1$/);
    bad({ epoch: 32768 }, /epoch .* got 32768$/);
    bad({ epoch: 0.5 }, /epoch/);
    bad({ epoch: "3" }, /epoch .* got "3"$/);
    bad({ epoch: 3n }, /epoch .* got 3n$/);
  });
});

describe("pairs", () => {
  it("are the same when both parts are", () => {
    const pair = { producerId: 2n ** 53n, epoch: 1 };
    expect(samePair(pair, { ...pair })).toBe(true);
    expect(samePair(pair, { ...pair, producerId: 2n ** 53n + 1n })).toBe(false);
    expect(samePair(pair, { ...pair, epoch: 2 })).toBe(false);
  });
});
