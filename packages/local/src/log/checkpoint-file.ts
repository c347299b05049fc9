import { crc32 } from "node:zlib";
import { damaged } from "../errors.js";
import type { Checkpoint } from "./durable-log.js";
import { LOG_ID_BYTES } from "./segment.js";

// A checkpoint is one file:
//   0  8 bytes magic + format version   24  int64  position   40  uint32 checksum of the 40 bytes before
//   8  16 bytes log id                  32  uint32 state bytes    44  state
//                                       36  uint32 state checksum

const MAGIC = new Uint8Array([0x4b, 0x52, 0x41, 0x42, 0x43, 0x48, 0x4b, 1]);
const HEADER_BYTES = 44;
const CHECKSUM_AT = 40;

/** Names sort as positions do. */
export const checkpointName = (position: bigint): string => `checkpoint-${String(position).padStart(20, "0")}.state`;

/** The position in a checkpoint's name, or undefined for another file. */
export function positionOfCheckpointName(name: string): bigint | undefined {
  const digits = /^checkpoint-(\d{20})\.state$/.exec(name)?.[1];
  return digits === undefined ? undefined : BigInt(digits);
}

const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export function encodeCheckpoint(logId: Uint8Array, position: bigint, state: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + state.length);
  const data = view(bytes);
  bytes.set(MAGIC);
  bytes.set(logId, 8);
  data.setBigInt64(24, position);
  data.setUint32(32, state.length);
  data.setUint32(36, crc32(state));
  data.setUint32(CHECKSUM_AT, crc32(bytes.subarray(0, CHECKSUM_AT)));
  bytes.set(state, HEADER_BYTES);
  return bytes;
}

/** @throws {LocalError} `DAMAGED` */
export function decodeCheckpoint(bytes: Uint8Array, file: string, logId: Uint8Array, position: bigint): Checkpoint {
  const place = { file, offsetBytes: 0 };
  if (bytes.length < HEADER_BYTES) throw damaged(place, `a checkpoint's header takes ${HEADER_BYTES} bytes`);
  const data = view(bytes);
  if (crc32(bytes.subarray(0, CHECKSUM_AT)) !== data.getUint32(CHECKSUM_AT)) {
    throw damaged(place, "the checksum of the checkpoint's header does not match");
  }
  if (!MAGIC.every((byte, index) => bytes[index] === byte))
    throw damaged(place, "not a checkpoint of format version 1");
  if (!logId.every((byte, index) => bytes[8 + index] === byte)) {
    throw damaged(place, `it belongs to another log than the segments (${LOG_ID_BYTES} bytes of log id differ)`);
  }
  if (data.getBigInt64(24) !== position)
    throw damaged(place, `it covers position ${data.getBigInt64(24)}, not ${position}`);
  const state = bytes.subarray(HEADER_BYTES);
  if (state.length !== data.getUint32(32)) {
    throw damaged({ file, offsetBytes: bytes.length }, `${data.getUint32(32)} bytes of state are wanted`);
  }
  if (crc32(state) !== data.getUint32(36)) {
    throw damaged({ file, offsetBytes: HEADER_BYTES }, "the checksum of the state does not match");
  }
  return { position, state, place: { file, offsetBytes: HEADER_BYTES } };
}
