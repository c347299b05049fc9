import type { AbortSignalLike } from "@krabka/core";

/**
 * The closed set of reasons for which this package refuses or fails. The strings are stable: branch on them.
 *
 * | code | meaning |
 * | --- | --- |
 * | `INVALID_ARGUMENT` | the caller passed something that cannot work; nothing changed |
 * | `IN_USE` | another handle, in this process or another, has the directory open |
 * | `DAMAGED` | stored bytes are not what was written, or make no sense; nothing was changed on disk |
 * | `FAILED` | storage failed; everything is refused until the log is opened again. A command that waited may or may not be durable |
 * | `QUEUE_FULL` | too many commands wait for the disk; this one was not taken |
 * | `LIMIT_REACHED` | a configured limit would be exceeded; nothing changed |
 * | `TOO_OLD` | the resume point lies before what is remembered; list again, then watch from there |
 * | `OTHER_HISTORY` | the resume point belongs to a history that this log does not continue, such as before a restore |
 * | `LOST` | a kept lease or membership is gone |
 * | `ABORTED` | the caller's `AbortSignal` fired; a command already taken still takes effect |
 * | `CLOSED` | the log, service or handle was closed |
 * | `UNSUPPORTED` | the platform or file system lacks what is needed |
 */
export type LocalErrorCode =
  | "INVALID_ARGUMENT"
  | "IN_USE"
  | "DAMAGED"
  | "FAILED"
  | "QUEUE_FULL"
  | "LIMIT_REACHED"
  | "TOO_OLD"
  | "OTHER_HISTORY"
  | "LOST"
  | "ABORTED"
  | "CLOSED"
  | "UNSUPPORTED";

/** A place in a stored file. */
export interface Place {
  readonly file: string;
  readonly offsetBytes: number;
}

export interface LocalErrorDetails {
  readonly place?: Place | undefined;
  readonly cause?: unknown;
}

// A registered symbol: an error is recognised also when two copies of this package are loaded.
const LOCAL_ERROR = Symbol.for("krabka.local.error");

/** Every error that this package throws on purpose. */
export class LocalError extends Error {
  readonly code: LocalErrorCode;
  /** Where the damage is, with `DAMAGED`. */
  readonly place: Place | undefined;

  constructor(code: LocalErrorCode, message: string, details: LocalErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "LocalError";
    this.code = code;
    this.place = details.place;
    Object.defineProperty(this, LOCAL_ERROR, { value: true });
  }

  static is(value: unknown): value is LocalError {
    return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[LOCAL_ERROR] === true;
  }
}

export const damaged = (place: Place, what: string, cause?: unknown): LocalError =>
  new LocalError("DAMAGED", `${place.file} is damaged at byte ${place.offsetBytes}: ${what}`, { place, cause });

export const invalid = (what: string, wanted: string, given: unknown): LocalError =>
  new LocalError("INVALID_ARGUMENT", `${what} must be ${wanted}; got ${show(given)}`);

export const aborted = (signal: AbortSignalLike, effect: string): LocalError =>
  new LocalError("ABORTED", `The call was aborted; ${effect}`, { cause: signal.reason });

const show = (value: unknown): string => {
  if (typeof value === "bigint") return `${value}n`;
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  return typeof value === "string" ? JSON.stringify(value) : String(value);
};
