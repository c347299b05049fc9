import { type AbortSignalLike, type Clock, MAX_TIMER_MS, utf8Length } from "@krabka/core";
import { invalid, LocalError } from "./errors.js";
import type { MembershipTimings } from "./state/command.js";

export interface ServiceOptions {
  /** Ends the opening while it reads, or its wait for the disk; the log then has to be opened anew too. */
  readonly signal?: AbortSignalLike | undefined;
  /** @default the machine's */
  readonly clock?: Clock | undefined;
  /** @default 1024 UTF-8 bytes, for keys and the names of leases, owners and members */
  readonly maxNameBytes?: number | undefined;
  /** @default 64 KiB */
  readonly maxValueBytes?: number | undefined;
  /** @default 100000 */
  readonly maxCoordinates?: number | undefined;
  /** Keys and values together, with 64 bytes for each. @default 64 MiB */
  readonly maxCoordinateBytes?: number | undefined;
  /** @default 10000 */
  readonly maxLeases?: number | undefined;
  /** Remembered DEAD and LEFT ones included. @default 10000 */
  readonly maxMembers?: number | undefined;
  /** Longest lease. @default 24 hours */
  readonly maxTtlMs?: number | undefined;
  /** Commands that may wait for the disk. @default 10000 */
  readonly maxPendingCommands?: number | undefined;
  /** @default 1000 */
  readonly maxWatches?: number | undefined;
  /** Notices that may wait for one listener. @default 1024 */
  readonly watchQueueNotices?: number | undefined;
  /** Notices that are remembered for watches that go on. @default 8192 */
  readonly rememberedNotices?: number | undefined;
  /** A checkpoint is written when this much was logged since the last. @default 4 MiB */
  readonly checkpointAfterBytes?: number | undefined;
  /** Silence after which a member becomes SUSPECT. @default 15000 */
  readonly suspectAfterMs?: number | undefined;
  /** How long a member stays SUSPECT before it is DEAD. @default 45000 */
  readonly deadAfterMs?: number | undefined;
  /** How long a DEAD or LEFT member is remembered. @default 1 hour */
  readonly forgetAfterMs?: number | undefined;
  /**
   * Raises all versions, epochs and fencing tokens by this much once. For an opening after a backup was restored: more than
   * was handed out since the backup, so that resources which saw those tokens accept the next ones. @default 0
   */
  readonly raiseCountersBy?: bigint | undefined;
  /** Takes what a watch's listener throws. @default a process warning */
  readonly onListenerError?: ((error: unknown) => void) | undefined;
}

export type Limits = Readonly<Record<keyof typeof DEFAULTS, number>>;

const DEFAULTS = {
  maxNameBytes: 1024,
  maxValueBytes: 64 * 1024,
  maxCoordinates: 100_000,
  maxCoordinateBytes: 64 * 1024 * 1024,
  maxLeases: 10_000,
  maxMembers: 10_000,
  maxTtlMs: 24 * 3_600_000,
  maxPendingCommands: 10_000,
  maxWatches: 1000,
  watchQueueNotices: 1024,
  rememberedNotices: 8192,
  checkpointAfterBytes: 4 * 1024 * 1024,
  suspectAfterMs: 15_000,
  deadAfterMs: 45_000,
  forgetAfterMs: 3_600_000,
} as const;

/** @throws {LocalError} `INVALID_ARGUMENT` */
export const limitsOf = (options: ServiceOptions): Limits => wholeNumbersOf(options, DEFAULTS);

/** What the options say, else the defaults. @throws {LocalError} `INVALID_ARGUMENT` unless all are whole numbers from 1 on */
export function wholeNumbersOf<Name extends string>(
  options: { readonly [K in NoInfer<Name>]?: number | undefined },
  defaults: Readonly<Record<Name, number>>,
): Record<Name, number> {
  const numbers: Record<Name, number> = { ...defaults };
  for (const name of Object.keys(defaults) as Name[]) {
    const number = options[name] ?? defaults[name];
    if (!Number.isSafeInteger(number) || number < 1) throw invalid(name, "a whole number from 1 on", number);
    numbers[name] = number;
  }
  return numbers;
}

export const timingsOf = ({ suspectAfterMs, deadAfterMs, forgetAfterMs }: Limits): MembershipTimings => ({
  suspectAfterMs,
  deadAfterMs,
  forgetAfterMs,
});

/** @throws {LocalError} `INVALID_ARGUMENT` */
export function checkName(what: string, name: string, maxBytes: number): void {
  const bytes = typeof name === "string" ? utf8Length(name) : 0;
  if (bytes >= 1 && bytes <= maxBytes) return;
  throw invalid(
    what,
    `1 to ${maxBytes} UTF-8 bytes of well-formed Unicode`,
    bytes > maxBytes ? `${bytes} bytes` : name,
  );
}

/** @throws {LocalError} `INVALID_ARGUMENT`, `LIMIT_REACHED` */
export function checkValue(what: string, value: Uint8Array, maxBytes: number): void {
  if (!(value instanceof Uint8Array)) throw invalid(what, "a Uint8Array", value);
  if (value.length > maxBytes) {
    throw new LocalError("LIMIT_REACHED", `${what} takes ${value.length} bytes; maxValueBytes is ${maxBytes}`);
  }
}

/** @throws {LocalError} `INVALID_ARGUMENT` */
export function checkEpoch(epoch: bigint): void {
  if (typeof epoch !== "bigint" || epoch < 0n || epoch >= 2n ** 63n)
    throw invalid("An epoch", "a bigint in 0..2^63-1", epoch);
}

/** @throws {LocalError} `INVALID_ARGUMENT` */
export function checkTtl(ttlMs: number, maxTtlMs: number): void {
  const most = Math.min(maxTtlMs, MAX_TIMER_MS);
  if (!Number.isInteger(ttlMs) || ttlMs < 1 || ttlMs > most)
    throw invalid("ttlMs", `whole milliseconds in 1..${most}`, ttlMs);
}
