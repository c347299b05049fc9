import { type ErrorCode, FencedError, KrabkaError } from "@krabka/core";
import { codeOfText, type NativeError, textOf } from "./native-binding.js";

/**
 * What an error of a transactional call means for the session.
 *
 * - `fenced`: the pair is dead.
 * - `again`: not done yet; librdkafka goes on by itself, and the same call is to be repeated.
 * - `abort`: this transaction can't be committed.
 * - `ended`: librdkafka's producer is unusable, for another reason than a fence.
 * - `doubtful`: it says nothing about the outcome.
 */
export type Verdict = "fenced" | "again" | "abort" | "ended" | "doubtful";

// Positive codes are the broker's (Kafka's Errors.java), negative ones librdkafka's (rdkafka.h).
export const CLIENT_CLOSED = -197;
export const TIMED_OUT = -185;
export const INCONSISTENT = -149;
const MESSAGE_TOO_LARGE = 10;
export const TOPIC_AUTHORIZATION_FAILED = 29;
export const GROUP_AUTHORIZATION_FAILED = 30;
export const TOPIC_ALREADY_EXISTS = 36;
export const INVALID_TRANSACTION_TIMEOUT = 50;

/** `_FENCED`, `INVALID_PRODUCER_EPOCH`, `INVALID_PRODUCER_ID_MAPPING`, `PRODUCER_FENCED`. */
const FENCES: ReadonlySet<number> = new Set([-144, 47, 49, 90]);

/**
 * Refusals of a record after which `abort_transaction` sends EndTxn and nothing else. After others librdkafka would send
 * InitProducerId with its own pair to raise the epoch, and Kafka (4.1) compares that pair only while no transaction is open:
 * a rival's would be aborted.
 */
const RECORD_REFUSALS: ReadonlySet<number> = new Set([
  3, // UNKNOWN_TOPIC_OR_PARTITION
  MESSAGE_TOO_LARGE,
  18, // RECORD_LIST_TOO_LARGE
  TOPIC_AUTHORIZATION_FAILED,
  32, // INVALID_TIMESTAMP
  44, // POLICY_VIOLATION
  76, // UNSUPPORTED_COMPRESSION_TYPE
  87, // INVALID_RECORD
  -188, // _UNKNOWN_TOPIC
  -190, // _UNKNOWN_PARTITION
]);

/** `INVALID_TXN_STATE`, `TRANSACTIONAL_ID_AUTHORIZATION_FAILED`, `UNKNOWN_PRODUCER_ID`, `TRANSACTION_ABORTABLE`. */
const ENDTXN_REFUSALS: ReadonlySet<number> = new Set([48, 53, 59, 120]);

const ERROR_CODES: Readonly<Record<number, ErrorCode>> = {
  [-199]: "INVALID_ARGUMENT",
  [CLIENT_CLOSED]: "CLOSED",
  [-190]: "UNKNOWN_TOPIC",
  [-188]: "UNKNOWN_TOPIC",
  [-186]: "INVALID_ARGUMENT",
  [-184]: "QUEUE_FULL",
  [-169]: "UNAUTHORIZED",
  [-165]: "UNSUPPORTED",
  [-152]: "NOT_COMMITTED",
  [-151]: "NOT_COMMITTED",
  [INCONSISTENT]: "NOT_COMMITTED",
  [-144]: "FENCED",
  3: "UNKNOWN_TOPIC",
  [MESSAGE_TOO_LARGE]: "INVALID_ARGUMENT",
  17: "INVALID_ARGUMENT",
  18: "INVALID_ARGUMENT",
  [TOPIC_AUTHORIZATION_FAILED]: "UNAUTHORIZED",
  [GROUP_AUTHORIZATION_FAILED]: "UNAUTHORIZED",
  31: "UNAUTHORIZED",
  32: "INVALID_ARGUMENT",
  33: "UNAUTHORIZED",
  34: "UNAUTHORIZED",
  35: "UNSUPPORTED",
  [TOPIC_ALREADY_EXISTS]: "TOPIC_MISCONFIGURED",
  37: "INVALID_ARGUMENT",
  38: "TOPIC_MISCONFIGURED",
  40: "TOPIC_MISCONFIGURED",
  42: "UNSUPPORTED",
  43: "UNSUPPORTED",
  44: "TOPIC_MISCONFIGURED",
  45: "NOT_COMMITTED",
  47: "FENCED",
  48: "NOT_COMMITTED",
  49: "FENCED",
  50: "INVALID_ARGUMENT",
  51: "BUSY",
  53: "UNAUTHORIZED",
  54: "UNSUPPORTED",
  58: "UNAUTHORIZED",
  59: "NOT_COMMITTED",
  65: "UNAUTHORIZED",
  76: "UNSUPPORTED",
  87: "INVALID_ARGUMENT",
  90: "FENCED",
  120: "NOT_COMMITTED",
};

/** The code of an error, also of one that node-rdkafka passes on as a text. */
export const codeOf = (error: NativeError): number => error.code ?? codeOfText.get(error.message) ?? -1;

/** @param error of `initTransactions`, `beginTransaction`, `commitTransaction` or `abortTransaction`. */
export const verdictOn = (error: NativeError): Verdict => {
  if (FENCES.has(codeOf(error))) return "fenced";
  if (error.isTxnRequiresAbort) return "abort";
  if (error.isFatal) return "ended";
  if (error.isRetriable || codeOf(error) === TIMED_OUT) return "again";
  return "doubtful";
};

/** Whether the broker said with this code that it does not execute an EndTxn. */
export const refusesEndTxn = (code: number): boolean => FENCES.has(code) || ENDTXN_REFUSALS.has(code);

/** Whether the coordinator said with this code that it did nothing about an InitProducerId, and soon may. */
export const refusesMint = (code: number): boolean => code === 14 || code === 16;

export const isFence = (code: number): boolean => FENCES.has(code);

/** Whether `abortTransaction` after this error leaves the epoch alone. */
export const leavesEpochAlone = (code: number): boolean => RECORD_REFUSALS.has(code);

/**
 * The error for a caller. What librdkafka calls a transport failure or a time-out of its own is `UNREACHABLE`.
 *
 * @param right is what a caller lacks who is refused.
 */
export const errorOf = (error: NativeError, what: string, right?: string): KrabkaError => {
  const code = codeOf(error);
  const known = ERROR_CODES[code] ?? "UNREACHABLE";
  const wanted = known === "UNAUTHORIZED" && right !== undefined ? `; wanted: the right ${right}` : "";
  const message = `${what}: ${error.message || textOf(code)} (${code})${wanted}`;
  return known === "FENCED"
    ? new FencedError(message, { cause: error })
    : new KrabkaError(known, message, { cause: error });
};

/** The error with which librdkafka's log says that it is about to repeat an InitProducerId. */
export const loggedMintError = (text: string): NativeError => {
  const [, reason = text] = /: ((?:Broker|Local): .+): retrying$/.exec(text) ?? [];
  return { message: reason, code: codeOf({ message: reason }) };
};

/** The making of a client contacts nobody: it fails for its settings. */
export const refusedSettings = (error: NativeError): KrabkaError =>
  new KrabkaError("INVALID_ARGUMENT", `librdkafka refuses its configuration: ${error.message}`, { cause: error });
