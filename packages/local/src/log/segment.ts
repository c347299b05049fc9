import { crc32 } from "node:zlib";
import { damaged, type LocalError } from "../errors.js";
import type { LogRecord } from "./durable-log.js";
import {
  decodeFrameHeader,
  FRAME_HEADER_BYTES,
  type FrameHeader,
  findLaterFrame,
  hasFlippedBit,
  isPayloadIntact,
  isZero,
  recordsFit,
} from "./frame.js";

// A segment is a file of frames behind a header. Zeros behind the last frame, up to the file's end, are space for more: no frame
// begins with a zero.
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
  /** Position after the last record. */
  readonly end: bigint;
  /** Bytes up to the end of the last intact frame. */
  readonly endBytes: number;
  /** Where the last intact frame starts, or where it would. */
  readonly lastFrameAt: number;
  readonly sealed: boolean;
  /** Bytes of a torn write behind the last intact frame. Zeros up to the file's end are none: they were allocated ahead. */
  readonly tornBytes: number;
}

/**
 * Checks a whole segment.
 *
 * @param isLast Only the last segment may end in a torn frame.
 * @throws {LocalError} `DAMAGED`
 */
export function scanSegment(bytes: Uint8Array, header: SegmentHeader, file: string, isLast: boolean): ScannedSegment {
  const seed = frameSeed(header);
  let at = SEGMENT_HEADER_BYTES;
  let lastFrameAt = at;
  let position = header.base;
  let sealed = false;
  while (!isZero(bytes, at, bytes.length)) {
    const frame = frameAt(bytes, at, position, seed, file);
    if (frame === undefined) {
      if (!isLast || sealed) throw damaged({ file, offsetBytes: at }, "no intact frame, and this is not the log's end");
      const damage = damageOfTail(bytes, at, position, seed, file);
      if (damage !== undefined) throw damage;
      return { end: position, endBytes: at, lastFrameAt, sealed, tornBytes: bytes.length - at };
    }
    if (sealed) throw damaged({ file, offsetBytes: at }, "a frame follows the one that ends the segment");
    sealed = frame.kind === "seal";
    position += BigInt(frame.records);
    lastFrameAt = at;
    at += FRAME_HEADER_BYTES + frame.payloadBytes;
  }
  return { end: position, endBytes: at, lastFrameAt, sealed, tornBytes: 0 };
}

/**
 * The records of a segment whose frames up to `endBytes` were found good, checked once more.
 *
 * @throws {LocalError} `DAMAGED`
 */
export function* recordsOf(
  bytes: Uint8Array,
  endBytes: number,
  header: SegmentHeader,
  file: string,
): Generator<LogRecord, void> {
  const seed = frameSeed(header);
  const data = view(bytes);
  let position = header.base;
  for (let at = SEGMENT_HEADER_BYTES; at < endBytes; ) {
    const frame = frameAt(bytes, at, position, seed, file);
    if (frame === undefined) throw damaged({ file, offsetBytes: at }, "no intact frame where one was found before");
    at += FRAME_HEADER_BYTES;
    for (let left = frame.records; left > 0; left--) {
      const start = at + 4;
      at = start + data.getUint32(at);
      yield { position, bytes: bytes.subarray(start, at), place: { file, offsetBytes: start } };
      position += 1n;
    }
  }
}

/**
 * The frame at `at`, or undefined where no intact one is.
 *
 * @throws {LocalError} `DAMAGED` for an intact one that does not belong there.
 */
const frameAt = (
  bytes: Uint8Array,
  at: number,
  position: bigint,
  seed: number,
  file: string,
): FrameHeader | undefined => {
  const frame = decodeFrameHeader(bytes, at, seed);
  if (frame === undefined) return undefined;
  const payloadAt = at + FRAME_HEADER_BYTES;
  if (!isPayloadIntact(bytes.subarray(payloadAt, payloadAt + frame.payloadBytes), frame)) return undefined;
  if (frame.firstPosition !== position) {
    throw damaged({ file, offsetBytes: at }, `record ${position} is wanted, ${frame.firstPosition} is there`);
  }
  if (!recordsFit(bytes, at, frame)) {
    throw damaged({ file, offsetBytes: at }, "the lengths of a frame's records do not add up");
  }
  return frame;
};

/**
 * What is wrong with the bytes at the log's end, or undefined for a write that a crash cut short.
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
