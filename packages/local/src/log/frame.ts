import { crc32 } from "node:zlib";

// A frame is what one durable write puts on disk: all records that share it. The next frame is written only after it, so at
// most one frame, the last, can be half there after a crash. Everything is big-endian.
//
//   0  uint32 magic                                   20  uint32 payload bytes
//   4  uint8  kind                                    24  uint32 payload checksum
//   5  uint24 payload bytes other than 0, mod 2^24    28  uint32 checksum of the 28 bytes before, seeded with the
//   8  uint32 records                                             segment's identity
//  12  int64  position of the first record            32  payload: per record uint32 length + bytes

const MAGIC = 0x4b52_4652;
export const FRAME_HEADER_BYTES = 32;
const CHECKSUM_AT = FRAME_HEADER_BYTES - 4;
const KINDS = ["records", "seal"] as const;

/** A `seal` holds no record: it ends a segment and says that a further one exists. */
export type FrameKind = (typeof KINDS)[number];

export interface FrameHeader {
  readonly kind: FrameKind;
  readonly firstPosition: bigint;
  readonly records: number;
  readonly payloadBytes: number;
  readonly payloadChecksum: number;
  /** Of its payload's bytes, modulo 2^24. */
  readonly nonZeroBytes: number;
}

const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Bytes that records of these sizes take as one frame. */
export const recordBytes = (record: Uint8Array): number => 4 + record.length;

export function encodeFrame(
  seed: number,
  kind: FrameKind,
  firstPosition: bigint,
  records: readonly Uint8Array[],
): Uint8Array {
  const payloadBytes = records.reduce((sum, record) => sum + recordBytes(record), 0);
  const bytes = new Uint8Array(FRAME_HEADER_BYTES + payloadBytes);
  const data = view(bytes);
  let at = FRAME_HEADER_BYTES;
  for (const record of records) {
    data.setUint32(at, record.length);
    bytes.set(record, at + 4);
    at += recordBytes(record);
  }
  data.setUint32(0, MAGIC);
  data.setUint32(4, KINDS.indexOf(kind) * 2 ** 24 + nonZeroBytesOf(bytes.subarray(FRAME_HEADER_BYTES)));
  data.setUint32(8, records.length);
  data.setBigInt64(12, firstPosition);
  data.setUint32(20, payloadBytes);
  data.setUint32(24, crc32(bytes.subarray(FRAME_HEADER_BYTES)));
  data.setUint32(CHECKSUM_AT, crc32(bytes.subarray(0, CHECKSUM_AT), seed));
  return bytes;
}

/** The header at `at`, or undefined where no intact one is. */
export function decodeFrameHeader(bytes: Uint8Array, at: number, seed: number): FrameHeader | undefined {
  if (at + FRAME_HEADER_BYTES > bytes.length) return undefined;
  const data = view(bytes);
  if (data.getUint32(at) !== MAGIC) return undefined;
  if (crc32(bytes.subarray(at, at + CHECKSUM_AT), seed) !== data.getUint32(at + CHECKSUM_AT)) return undefined;
  const kind = KINDS[data.getUint8(at + 4)];
  if (kind === undefined) return undefined;
  return {
    kind,
    records: data.getUint32(at + 8),
    firstPosition: data.getBigInt64(at + 12),
    payloadBytes: data.getUint32(at + 20),
    payloadChecksum: data.getUint32(at + 24),
    nonZeroBytes: data.getUint32(at + 4) % 2 ** 24,
  };
}

/** Whether the lengths of an intact payload's records add up. */
export function recordsFit(bytes: Uint8Array, at: number, header: FrameHeader): boolean {
  const data = view(bytes);
  const end = at + FRAME_HEADER_BYTES + header.payloadBytes;
  let next = at + FRAME_HEADER_BYTES;
  let records = 0;
  for (; next + 4 <= end; records++) next += 4 + data.getUint32(next);
  return next === end && records === header.records;
}

/** Offset of the first intact header from `from` on whose records come no earlier than `position`, or undefined. */
export function findLaterFrame(bytes: Uint8Array, from: number, position: bigint, seed: number): number | undefined {
  const first = MAGIC >>> 24;
  for (let at = bytes.indexOf(first, from); at >= 0; at = bytes.indexOf(first, at + 1)) {
    const header = decodeFrameHeader(bytes, at, seed);
    if (header !== undefined && header.firstPosition >= position) return at;
  }
  return undefined;
}

/** What a disk writes whole or not at all. */
const SECTOR_BYTES = 512;

/**
 * Whether the frame at `at` was written to its end and one bit of it has flipped since. A write that a crash cut short leaves
 * zeros from some byte up to the end, or in whole sectors, which reach the disk in any order. So a bit which could have been
 * lost that way does not count.
 */
export function hasFlippedBit(bytes: Uint8Array, at: number, seed: number): boolean {
  const header = decodeFrameHeader(bytes, at, seed);
  const flippedAt =
    header === undefined
      ? flippedHeaderByte(bytes, at, seed)
      : flippedPayloadByte(payloadAt(bytes, at, header), header);
  if (flippedAt === undefined) return false;
  const byte = at + flippedAt + (header === undefined ? 0 : FRAME_HEADER_BYTES);
  const sector = byte - (byte % SECTOR_BYTES);
  return !isZero(bytes, byte, bytes.length) && !isZero(bytes, Math.max(at, sector), sector + SECTOR_BYTES);
}

/** Counts, modulo 2^24. */
const nonZeroBytesOf = (payload: Uint8Array): number => {
  let count = 0;
  for (const byte of payload) if (byte !== 0) count += 1;
  return count % 2 ** 24;
};

/** Whether nothing but zeros is there; past the end of the bytes nothing is. */
export function isZero(bytes: Uint8Array, from: number, to: number): boolean {
  for (let at = from; at < to && at < bytes.length; at++) if (bytes[at] !== 0) return false;
  return true;
}

const payloadAt = (bytes: Uint8Array, at: number, header: FrameHeader): Uint8Array =>
  bytes.subarray(at + FRAME_HEADER_BYTES, at + FRAME_HEADER_BYTES + header.payloadBytes);

/** Tries every bit of the header; the one that makes all of the frame valid is it. */
const flippedHeaderByte = (bytes: Uint8Array, at: number, seed: number): number | undefined => {
  const frame = bytes.slice(at);
  for (let bit = 0; bit < FRAME_HEADER_BYTES * 8 && bit < frame.length * 8; bit++) {
    const byte = bit >> 3;
    frame[byte] = (frame[byte] as number) ^ (1 << (bit & 7));
    const header = decodeFrameHeader(frame, 0, seed);
    if (header !== undefined && isPayloadIntact(payloadAt(frame, 0, header), header)) return byte;
    frame[byte] = (frame[byte] as number) ^ (1 << (bit & 7));
  }
  return undefined;
};

export const isPayloadIntact = (payload: Uint8Array, header: FrameHeader): boolean =>
  payload.length === header.payloadBytes && crc32(payload) === header.payloadChecksum;

/**
 * CRC-32 is linear, so the difference of the checksums of two payloads that differ in one bit depends only on where that bit
 * is: the last bit gives the polynomial, each earlier one a step more. A long payload of which a crash lost sectors differs
 * as one bit would in one of some thousand cases; then it has fewer bytes that are not zero than one flipped bit explains.
 */
const flippedPayloadByte = (payload: Uint8Array, header: FrameHeader): number | undefined => {
  if (payload.length < header.payloadBytes) return undefined;
  const difference = (crc32(payload) ^ header.payloadChecksum) >>> 0;
  let pattern = POLYNOMIAL;
  for (let bit = payload.length * 8 - 1; bit >= 0; bit--) {
    if (pattern === difference) return isCountIntact(payload, bit, header) ? bit >> 3 : undefined;
    pattern = (pattern & 1) === 0 ? pattern >>> 1 : ((pattern >>> 1) ^ POLYNOMIAL) >>> 0;
  }
  return undefined;
};

/** Whether the payload has as many bytes that are not zero as were written, with this bit turned back. */
const isCountIntact = (payload: Uint8Array, bit: number, header: FrameHeader): boolean => {
  const found = payload[bit >> 3] as number;
  const written = found ^ (1 << (bit & 7));
  return (
    (nonZeroBytesOf(payload) - Number(found !== 0) + Number(written !== 0) + 2 ** 24) % 2 ** 24 === header.nonZeroBytes
  );
};

/** Of CRC-32, its lowest power first. */
const POLYNOMIAL = 0xedb8_8320;
