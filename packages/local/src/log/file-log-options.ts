import type { AbortSignalLike } from "@krabka/core";
import { invalid } from "../errors.js";
import type { LogFileSystem } from "./file-system.js";

export interface FileLogOptions {
  /** Ends the opening while it reads. */
  readonly signal?: AbortSignalLike | undefined;
  /** A segment that has reached this size is followed by a new one. @default 8 MiB */
  readonly segmentBytes?: number | undefined;
  /** Largest record. @default 1 MiB */
  readonly maxRecordBytes?: number | undefined;
  /** How much may share one fsync. @default 1 MiB */
  readonly maxBatchBytes?: number | undefined;
  /**
   * Files grow in steps of this, filled with zeros, since a sync that also makes a new size durable takes longer. 0: they grow
   * with each write. @default 256 KiB
   */
  readonly aheadBytes?: number | undefined;
  /** @default the machine's */
  readonly fileSystem?: LogFileSystem | undefined;
}

const MIB = 1024 * 1024;
/** Frames keep their length in 32 bits; well below that a whole segment is still read at once. */
const MAX_FRAME_BYTES = 256 * MIB;

export interface LogLimits {
  readonly segmentBytes: number;
  readonly maxRecordBytes: number;
  readonly maxBatchBytes: number;
  readonly aheadBytes: number;
}

/** @throws {LocalError} `INVALID_ARGUMENT` */
export const logLimitsOf = (options: FileLogOptions): LogLimits => ({
  segmentBytes: size("segmentBytes", options.segmentBytes ?? 8 * MIB),
  maxRecordBytes: size("maxRecordBytes", options.maxRecordBytes ?? MIB),
  maxBatchBytes: size("maxBatchBytes", options.maxBatchBytes ?? MIB),
  aheadBytes: options.aheadBytes === 0 ? 0 : size("aheadBytes", options.aheadBytes ?? MIB / 4),
});

const size = (name: string, value: number): number => {
  if (Number.isInteger(value) && value >= 1 && value <= MAX_FRAME_BYTES) return value;
  throw invalid(name, `whole bytes in 1..${MAX_FRAME_BYTES}`, value);
};
