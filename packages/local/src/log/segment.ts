import { crc32 } from "node:zlib";
import { damaged, type LocalError } from "../errors.js";
import type { LogRecord } from "./durable-log.js";
import {
  decodeFrameHeader,
  FRAME_HEADER_BYTES,
  findLaterFrame,
  hasFlippedBit,
  isPayloadIntact,
  recordExtents,
} from "./frame.js";

// A segment is a file of frames behind a header:
//   0  8 bytes magic + format version   8  16 bytes log id   24  int64 position of its first record   32  uint32 checksum

const MAGIC = new Uint8Array([0x4b, 0x52, 0x41, 0x42, 0x4c, 0x4f, 0x47, 1]);
const SEGMENT_HEADER_BYTES = 36;
export const LOG_ID_BYTES = 16;

export interface SegmentHeader {
  readonly logId: Uint8Array;
  readonly base: bigint;
}

/** Names sort as positions do. */
export const segmentName = (base: bigint): string => `segment-${String(base).padStart(20, "0")}.log`;

/** The position in a segment's name, or undefined for another file. */
export function baseOfSegmentName(name: string): bigint | undefined {
  const digits = /^segment-(\d{20})\.log$/.exec(name)?.[1];
  return digits === undefined ? undefined : BigInt(digits);
}

const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export function encodeSegmentHeader({ logId, base }: SegmentHeader): Uint8Array {
  const bytes = new Uint8Array(SEGMENT_HEADER_BYTES);
  bytes.set(MAGIC);
  bytes.set(logId, 8);
  view(bytes).setBigInt64(24, base);
  view(bytes).setUint32(32, crc32(bytes.subarray(0, 32)));
  return bytes;
}

/** @throws {LocalError} `DAMAGED`: a segment gets its name only once its header is durable, so a bad header is no tear. */
export function decodeSegmentHeader(bytes: Uint8Array, file: string): SegmentHeader {
  if (bytes.length < SEGMENT_HEADER_BYTES) {
    throw damaged({ file, offsetBytes: bytes.length }, `a segment's header takes ${SEGMENT_HEADER_BYTES} bytes`);
  }
  if (crc32(bytes.subarray(0, 32)) !== view(bytes).getUint32(32)) {
    throw damaged({ file, offsetBytes: 0 }, "the checksum of the segment's header does not match");
  }
  if (!MAGIC.every((byte, index) => bytes[index] === byte)) {
    throw damaged({ file, offsetBytes: 0 }, "not a segment of format version 1");
  }
  return { logId: bytes.slice(8, 8 + LOG_ID_BYTES), base: view(bytes).getBigInt64(24) };
}

/** What frames of this segment seed their checksums with, so that those of another one never pass for its own. */
export const frameSeed = (header: SegmentHeader): number => crc32(encodeSegmentHeader(header));

export interface ScannedSegment {
  readonly records: readonly LogRecord[];
  /** Position after the last record. */
  readonly end: bigint;
  /** Bytes up to the end of the last intact frame. */
  readonly endBytes: number;
  /** Where the last intact frame starts, or where it would. */
  readonly lastFrameAt: number;
  readonly sealed: boolean;
  /** Bytes behind the last intact frame: a torn write, or space that was allocated ahead. */
  readonly tornBytes: number;
}

/**
 * Reads a whole segment.
 *
 * @param isLast Only the last segment may end in a torn frame.
 * @throws {LocalError} `DAMAGED`
 */
export function scanSegment(bytes: Uint8Array, header: SegmentHeader, file: string, isLast: boolean): ScannedSegment {
  const seed = frameSeed(header);
  const records: LogRecord[] = [];
  let at = SEGMENT_HEADER_BYTES;
  let lastFrameAt = at;
  let position = header.base;
  let sealed = false;
  while (at < bytes.length) {
    const frame = decodeFrameHeader(bytes, at, seed);
    const end = at + FRAME_HEADER_BYTES + (frame?.payloadBytes ?? 0);
    const payload = bytes.subarray(at + FRAME_HEADER_BYTES, end);
    if (frame === undefined || !isPayloadIntact(payload, frame)) {
      if (!isLast || sealed) throw damaged({ file, offsetBytes: at }, "no intact frame, and this is not the log's end");
      const damage = damageOfTail(bytes, at, position, seed, file);
      if (damage !== undefined) throw damage;
      break;
    }
    if (sealed) throw damaged({ file, offsetBytes: at }, "a frame follows the one that ends the segment");
    if (frame.firstPosition !== position) {
      throw damaged({ file, offsetBytes: at }, `record ${position} is wanted, ${frame.firstPosition} is there`);
    }
    const extents = recordExtents(bytes, at, frame);
    if (extents === undefined)
      throw damaged({ file, offsetBytes: at }, "the lengths of a frame's records do not add up");
    for (const [start, stop] of extents) {
      records.push({ position, bytes: bytes.subarray(start, stop), place: { file, offsetBytes: start } });
      position += 1n;
    }
    sealed = frame.kind === "seal";
    lastFrameAt = at;
    at = end;
  }
  return { records, end: position, endBytes: at, lastFrameAt, sealed, tornBytes: bytes.length - at };
}

/**
 * What is wrong with the bytes at the log's end, or undefined for a write that a crash cut short (or zeros allocated ahead).
 *
 * A frame is written only after the one before it was synced. So an intact frame behind bad bytes proves that those were
 * good once, and so does a frame that only a flipped bit keeps from being valid.
 */
const damageOfTail = (
  bytes: Uint8Array,
  at: number,
  position: bigint,
  seed: number,
  file: string,
): LocalError | undefined => {
  const later = findLaterFrame(bytes, at + 1, position, seed);
  if (later !== undefined) {
    return damaged({ file, offsetBytes: at }, `no intact frame, but a later one follows at byte ${later}`);
  }
  if (hasFlippedBit(bytes, at, seed)) return damaged({ file, offsetBytes: at }, "one bit of a frame has flipped");
  return undefined;
};
