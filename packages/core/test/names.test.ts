import { MAX_NAME_BYTES, MemberId, partitionForKey, partitionForRecord, partitionForRole, Role } from "@krabka/core";
import { describe, expect, it } from "vitest";

const invalid = (message: RegExp) =>
  expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringMatching(message) });

describe.each([
  ["Role", Role.of],
  ["MemberId", MemberId.of],
] as const)("%s", (_, of) => {
  it("keeps a well-formed name as it is, also with characters that others use as separators", () => {
    for (const name of ["a", "controller", "x/y", "a b", "a-b-c", "ä", "役割", "👑", "\u0000", "e\u0301"]) {
      expect(of(name)).toBe(name);
    }
  });

  it("counts bytes and not characters", () => {
    expect(of("x".repeat(MAX_NAME_BYTES))).toHaveLength(249);
    expect(of("ä".repeat(124))).toHaveLength(124);
    expect(() => of("x".repeat(250))).toThrow(invalid(/1 to 249 UTF-8 bytes.*got 250 bytes/));
    expect(() => of("ä".repeat(125))).toThrow(invalid(/got 250 bytes/));
  });

  it("refuses an empty name, a lone surrogate and what is no string, and names it", () => {
    expect(() => of("")).toThrow(invalid(/got ""/));
    expect(() => of("a\ud800")).toThrow(invalid(/lone surrogate/));
    expect(() => of("\udc00a")).toThrow(invalid(/lone surrogate/));
    for (const [given, shown] of [
      [undefined, "undefined"],
      [null, "null"],
      [7, "7"],
      [Object.create(null), "an object"],
    ]) {
      expect(() => of(given)).toThrow(invalid(new RegExp(`got ${shown}$`)));
    }
  });
});

describe("partitions", () => {
  it("are 16 unless configured otherwise", () => {
    expect(partitionForRole(Role.of("controller"))).toBe(partitionForRole(Role.of("controller"), 16));
  });

  it("must be a whole number from 1 on", () => {
    for (const partitions of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => partitionForKey(new Uint8Array(), partitions)).toThrow(invalid(/partition count/));
    }
  });

  it("of a record are the one it names, else that of its key, else the next in turn", () => {
    const [topic, key] = ["commands", new Uint8Array([1, 2, 3])];
    expect(partitionForRecord({ topic, key, partition: 2 }, 3, 0)).toBe(2);
    for (const turn of [0, 1, 2]) expect(partitionForRecord({ topic, key }, 3, turn)).toBe(partitionForKey(key, 3));
    expect([4, 5, 6].map((turn) => partitionForRecord({ topic, key: null }, 3, turn))).toEqual([1, 2, 0]);
  });

  it("of a record are refused where the topic has no such partition", () => {
    for (const partition of [-1, 3, 0.5, Number.NaN]) {
      expect(() => partitionForRecord({ topic: "commands", key: null, partition }, 3, 0)).toThrow(
        invalid(/"commands" has 3 partitions; partition .* was given/),
      );
    }
  });
});
