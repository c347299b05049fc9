import { FencedError, KrabkaError } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { textOf } from "../src/native-binding.js";
import {
  codeOf,
  errorOf,
  leavesEpochAlone,
  loggedMintError,
  refusesEndTxn,
  refusesMint,
  verdictOn,
} from "../src/native-errors.js";

const native = (code: number, flags: object = {}) => ({ message: "", code, ...flags });
const FATAL = { isFatal: true, isRetriable: false, isTxnRequiresAbort: false };
const ABORT = { isFatal: false, isRetriable: false, isTxnRequiresAbort: true };
const RETRIABLE = { isFatal: false, isRetriable: true, isTxnRequiresAbort: false };
const PLAIN = { isFatal: false, isRetriable: false, isTxnRequiresAbort: false };

describe("an error of a transactional call", () => {
  it.each([
    ["_FENCED", -144],
    ["INVALID_PRODUCER_EPOCH", 47],
    ["INVALID_PRODUCER_ID_MAPPING", 49],
    ["PRODUCER_FENCED", 90],
  ])("B12: %s is a fence, whatever its flags", (_, code) => {
    for (const flags of [FATAL, ABORT, RETRIABLE, PLAIN, {}]) expect(verdictOn(native(code, flags))).toBe("fenced");
    expect(FencedError.is(errorOf(native(code), "Committing"))).toBe(true);
  });

  it.each([48, 59, 120, -149, -192])("B12: code %i ends the transaction where librdkafka wants it aborted", (code) => {
    expect(verdictOn(native(code, ABORT))).toBe("abort");
    expect(verdictOn(native(code, FATAL))).toBe("ended");
  });

  it.each([
    [-150, FATAL, "ended"],
    [-150, PLAIN, "doubtful"],
    [-172, FATAL, "ended"],
    [-172, PLAIN, "doubtful"],
    [-185, FATAL, "ended"],
    [-185, PLAIN, "again"],
    [-185, {}, "again"],
    [51, RETRIABLE, "again"],
    [14, RETRIABLE, "again"],
    [15, RETRIABLE, "again"],
    [16, RETRIABLE, "again"],
    [52, ABORT, "abort"],
    [50, FATAL, "ended"],
    [53, FATAL, "ended"],
    [-1, PLAIN, "doubtful"],
    [9999, PLAIN, "doubtful"],
    [9999, {}, "doubtful"],
  ] as const)("B12: code %i with %o is %s", (code, flags, verdict) => {
    expect(verdictOn(native(code, flags))).toBe(verdict);
  });

  it("B12: is never a reason to repeat a write after a fence", () => {
    for (const code of [-144, 47, 49, 90]) {
      expect(verdictOn(native(code, RETRIABLE))).not.toBe("again");
      expect(leavesEpochAlone(code)).toBe(false);
    }
  });
});

describe("the error that a caller gets", () => {
  it.each([
    [29, "UNAUTHORIZED"],
    [30, "UNAUTHORIZED"],
    [53, "UNAUTHORIZED"],
    [58, "UNAUTHORIZED"],
    [-169, "UNAUTHORIZED"],
    [3, "UNKNOWN_TOPIC"],
    [-188, "UNKNOWN_TOPIC"],
    [-190, "UNKNOWN_TOPIC"],
    [-185, "UNREACHABLE"],
    [-195, "UNREACHABLE"],
    [-187, "UNREACHABLE"],
    [-192, "UNREACHABLE"],
    [14, "UNREACHABLE"],
    [15, "UNREACHABLE"],
    [16, "UNREACHABLE"],
    [52, "UNREACHABLE"],
    [51, "BUSY"],
    [50, "INVALID_ARGUMENT"],
    [10, "INVALID_ARGUMENT"],
    [87, "INVALID_ARGUMENT"],
    [48, "NOT_COMMITTED"],
    [59, "NOT_COMMITTED"],
    [120, "NOT_COMMITTED"],
    [35, "UNSUPPORTED"],
    [-184, "QUEUE_FULL"],
    [-1, "UNREACHABLE"],
    [9999, "UNREACHABLE"],
  ] as const)("B12: of code %i is %s", (code, expected) => {
    const error = errorOf(native(code), "Asking");
    expect(KrabkaError.is(error)).toBe(true);
    expect(error.code).toBe(expected);
    expect(error.message).toMatch(new RegExp(`^Asking: .+ \\(${code}\\)$`));
  });

  it("is found by librdkafka's text where node-rdkafka passes no code on", () => {
    expect(codeOf({ message: textOf(29) })).toBe(29);
    expect(codeOf({ message: textOf(-195) })).toBe(-195);
    expect(codeOf({ message: "something new" })).toBe(-1);
  });
});

describe("what an answer proves", () => {
  it("B12: a refusal of the only EndTxn proves that nothing was committed; a lost answer does not", () => {
    for (const code of [-144, 47, 49, 90, 48, 53, 59, 120]) expect(refusesEndTxn(code)).toBe(true);
    for (const code of [-185, -195, -150, -172, 51, 14, 15, 16, -1, 9999]) expect(refusesEndTxn(code)).toBe(false);
  });

  it("a coordinator that is loading or moved did not mint; one that is not available may have", () => {
    for (const code of [14, 16]) expect(refusesMint(code)).toBe(true);
    for (const code of [15, 51, -185, -195, 53]) expect(refusesMint(code)).toBe(false);
  });

  it("librdkafka's log tells why a mint failed", () => {
    const logged = `[thrd:main]: Failed to acquire transactional PID from broker TxnCoordinator/1: ${textOf(51)}: retrying`;
    expect(codeOf(loggedMintError(logged))).toBe(51);
    expect(errorOf(loggedMintError(logged), "Minting").code).toBe("BUSY");
    expect(errorOf(loggedMintError("something new"), "Minting").code).toBe("UNREACHABLE");
  });

  it("an abort may follow a refused record, not an error for which librdkafka raises the epoch", () => {
    for (const code of [3, 10, 18, 29, 87, -188, -190]) expect(leavesEpochAlone(code)).toBe(true);
    for (const code of [45, 59, 47, 49, -192, -185, -149, 2, 9999]) expect(leavesEpochAlone(code)).toBe(false);
  });
});
