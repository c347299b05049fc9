import type { Clock } from "@krabka/core";
import { invalid } from "../../errors.js";
import { wholeNumbersOf } from "../../limits.js";

export interface BrokerOptions {
  readonly clock: Clock;
  /** Memory for the records that a partition keeps, with 320 bytes for each write; the oldest go first. @default 16 MiB */
  readonly retentionBytes?: number | undefined;
  /** Records that a partition keeps. @default 1000000 */
  readonly retentionRecords?: number | undefined;
  /** Memory for the records of all partitions together; the largest gives first. @default 64 MiB */
  readonly retentionBytesInAll?: number | undefined;
  /**
   * Roles whose pairs are remembered. Beyond that those that were silent for longest are forgotten: their pairs are dead, and
   * they go on under a new producer id. More than this at the same time push each other out. @default 10000
   */
  readonly maxRoles?: number | undefined;
  /** How long a removal stays in the coordination topic. @default 24 hours */
  readonly tombstoneMs?: number | undefined;
  /**
   * Raises all offsets, so also terms, and all producer ids by this much at the opening. For the one after a backup was put back: more
   * than was handed out since the backup, so that resources which saw those tokens accept the next ones. @default 0
   */
  readonly raiseCountersBy?: bigint | undefined;
  /** A checkpoint is written when this much, and as much as the state takes, was logged since the last. @default 4 MiB */
  readonly checkpointAfterBytes?: number | undefined;
}

const MIB = 1024 * 1024;

const DEFAULTS = {
  retentionBytes: 16 * MIB,
  retentionRecords: 1_000_000,
  retentionBytesInAll: 64 * MIB,
  maxRoles: 10_000,
  tombstoneMs: 24 * 3_600_000,
  checkpointAfterBytes: 4 * MIB,
} as const;

export type BrokerLimits = Readonly<Record<keyof typeof DEFAULTS, number>>;

/** Leaves room for so many raises that nobody comes to their end. */
const MAX_RAISE = 2n ** 48n;

/** @throws {LocalError} `INVALID_ARGUMENT` */
export const brokerLimitsOf = (options: BrokerOptions): BrokerLimits => {
  const { raiseCountersBy: raiseBy = 0n } = options;
  if (typeof raiseBy !== "bigint" || raiseBy < 0n || raiseBy > MAX_RAISE) {
    throw invalid("raiseCountersBy", "a bigint in 0..2^48", raiseBy);
  }
  return wholeNumbersOf(options, DEFAULTS);
};
