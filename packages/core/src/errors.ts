import type { FencingToken } from "./fencing-token.js";

/**
 * The closed set of reasons for which Krabka refuses or fails. The strings are stable: branch on them.
 *
 * | code | meaning |
 * | --- | --- |
 * | `INVALID_ARGUMENT` | the caller passed something that cannot work; nothing was sent |
 * | `FENCED` | the broker refused the pair: a newer one exists, or the broker itself ended it by a timeout |
 * | `NOT_LEADER` | this handle does not lead (any more); nothing was sent |
 * | `NOT_COMMITTED` | nothing of the write is or will be visible; the leadership is still good |
 * | `UNKNOWN_OUTCOME` | the write may or may not become visible, and that could not be learned in time |
 * | `TIMEOUT` | the caller's time limit passed |
 * | `ABORTED` | the caller's `AbortSignal` fired |
 * | `BUSY` | the coordinator is still ending an earlier transaction; read the role again and retry |
 * | `UNREACHABLE` | no broker answered |
 * | `UNAUTHORIZED` | credentials or a permission are missing; retrying does not help until an operator acts |
 * | `TOPIC_MISCONFIGURED` | the coordination topic has another clean-up policy or partition count than is wanted |
 * | `UNKNOWN_TOPIC` | a topic does not exist |
 * | `DUPLICATE_MEMBER` | two live processes use one member id for one role |
 * | `UNSUPPORTED` | the backend or broker version lacks what was asked for |
 * | `QUEUE_FULL` | the bounded queue of waiting writes is full; nothing was sent |
 * | `MALFORMED_RECORD` | bytes that are not a record of the frozen wire format |
 * | `CLOSED` | the client, transport or handle was closed |
 */
export type ErrorCode =
  | "INVALID_ARGUMENT"
  | "FENCED"
  | "NOT_LEADER"
  | "NOT_COMMITTED"
  | "UNKNOWN_OUTCOME"
  | "TIMEOUT"
  | "ABORTED"
  | "BUSY"
  | "UNREACHABLE"
  | "UNAUTHORIZED"
  | "TOPIC_MISCONFIGURED"
  | "UNKNOWN_TOPIC"
  | "DUPLICATE_MEMBER"
  | "UNSUPPORTED"
  | "QUEUE_FULL"
  | "MALFORMED_RECORD"
  | "CLOSED";

/** What an error may say besides its code and message. */
export interface ErrorDetails {
  readonly role?: string | undefined;
  readonly member?: string | undefined;
  readonly token?: FencingToken | undefined;
  readonly cause?: unknown;
}

// A registered symbol: an error is recognised also when two copies of this package are loaded.
const KRABKA_ERROR = Symbol.for("krabka.error");

/** Every error that Krabka throws on purpose. */
export class KrabkaError extends Error {
  readonly code: ErrorCode;
  readonly role: string | undefined;
  readonly member: string | undefined;
  readonly token: FencingToken | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "KrabkaError";
    this.code = code;
    this.role = details.role;
    this.member = details.member;
    this.token = details.token;
    Object.defineProperty(this, KRABKA_ERROR, { value: true });
  }

  /** Whether `value` is an error of this kind, from whichever copy of this package; `instanceof` can't tell. */
  static is(value: unknown): value is KrabkaError {
    return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[KRABKA_ERROR] === true;
  }
}

/**
 * The broker refused the writer's pair. Expected in normal operation: somebody else may lead now, or the broker itself
 * ended the pair because a transaction ran into its timeout. The error does not claim which of the two it was.
 */
export class FencedError extends KrabkaError {
  constructor(message: string, details: ErrorDetails = {}) {
    super("FENCED", message, details);
    this.name = "FencedError";
  }

  static override is(value: unknown): value is FencedError {
    return KrabkaError.is(value) && value.code === "FENCED";
  }
}

/** Two live processes use one member id for one role. Give each process its own id. */
export class DuplicateMemberError extends KrabkaError {
  constructor(message: string, details: ErrorDetails = {}) {
    super("DUPLICATE_MEMBER", message, details);
    this.name = "DuplicateMemberError";
  }

  static override is(value: unknown): value is DuplicateMemberError {
    return KrabkaError.is(value) && value.code === "DUPLICATE_MEMBER";
  }
}
