import { FencedError } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { type CodeMeaning, errorOf, meaningOf, nameOf, onRole, onTopic } from "../src/error-codes.js";

const ROWS: readonly (readonly [CodeMeaning, readonly number[]])[] = [
  ["fenced", [47, 90, 49]],
  ["refused-transaction", [45, 48, 59, 120]],
  ["busy", [14, 19, 51]],
  ["moved", [5, 6, 15, 16, 52, 74]],
  ["doubtful", [7, 20]],
  ["refused", [3, 10, 29, 30, 50, 53, 87]],
  ["unknown", [-1, 46, 9999]],
];

describe("error codes", () => {
  it.each(ROWS)("B12: mean %s: %j", (meaning, codes) => {
    expect(codes.map(meaningOf)).toEqual(codes.map(() => meaning));
  });

  it.each([47, 90, 49])("B12: %i becomes a FencedError that does not claim a rival", (code) => {
    const error = errorOf(code, "Writing");
    expect(FencedError.is(error)).toBe(true);
    expect(error.message).not.toMatch(/rival|another|newer/i);
  });

  it.each([
    [3, "UNKNOWN_TOPIC"],
    [10, "INVALID_ARGUMENT"],
    [19, "UNREACHABLE"],
    [29, "UNAUTHORIZED"],
    [35, "UNSUPPORTED"],
    [48, "NOT_COMMITTED"],
    [50, "INVALID_ARGUMENT"],
    [51, "BUSY"],
    [53, "UNAUTHORIZED"],
    [9999, "UNREACHABLE"],
  ] as const)("B12: %i becomes %s for the caller", (code, expected) => {
    expect(errorOf(code, "Asking").code).toBe(expected);
  });

  it("name the right that is missing, and only where one is", () => {
    const right = onRole("Write", "controller");
    expect(errorOf(53, "Minting", { right }).message).toBe(
      'Minting: the broker answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53); wanted: the right Write on transactional id "controller"',
    );
    expect(errorOf(51, "Minting", { right }).message).not.toContain("right");
    expect(errorOf(29, "Writing", { right: onTopic("Write", "commands") }).message).toContain(
      'Write on topic "commands"',
    );
  });

  it("are named with their number, known or not", () => {
    expect(nameOf(51)).toBe("CONCURRENT_TRANSACTIONS (51)");
    expect(nameOf(9999)).toBe("unknown code (9999)");
  });
});
