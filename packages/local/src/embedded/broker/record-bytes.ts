import type { RawRecord } from "@krabka/core";
import { ByteReader, ByteWriter } from "../../state/binary.js";

// A record as the log, the checkpoint and the socket carry it:
//   int64 timestamp (ms since 1970) | presence, key | presence, value | headers

/** A record with the time that its writer gave it. */
export interface TimedRecord extends RawRecord {
  readonly timestampMs: number;
}

/** Where the key's bytes start, if there is a key. */
const KEY_AT = 8 + 1 + 4;
/** The key of the coordination topic starts with its version and kind, and the length of the role. */
const ROLE_AT = KEY_AT + 6;

export function encodeRecord(record: TimedRecord): Uint8Array {
  const putBytes = (writer: ByteWriter, bytes: Uint8Array): void => void writer.bytes(bytes);
  return new ByteWriter()
    .int64(BigInt(Math.trunc(record.timestampMs)))
    .optional(record.key ?? undefined, putBytes)
    .optional(record.value ?? undefined, putBytes)
    .list(record.headers, (writer, { key, value }) => writer.string(key).bytes(value))
    .finish();
}

/** @throws {Error} for bytes that are no record */
export function decodeRecord(bytes: Uint8Array): TimedRecord {
  const reader = new ByteReader(bytes);
  const timestampMs = Number(reader.int64());
  const key = reader.optional((from) => from.bytes()) ?? null;
  const value = reader.optional((from) => from.bytes()) ?? null;
  const headers = reader.list((from) => ({ key: from.string(), value: from.bytes() }));
  reader.end();
  return { key, value, headers, timestampMs };
}

/** The key as text that is equal for equal keys only. */
export const keyTextOf = (record: RawRecord): string | undefined =>
  record.key === null ? undefined : Buffer.from(record.key).toString("latin1");

/**
 * The role (its UTF-8 bytes) of a record of the coordination topic, or undefined for a key of any other form. Looks at the bytes
 * alone, since most records of a partition are of no interest to whoever asks.
 */
export function roleIn(bytes: Uint8Array): Uint8Array | undefined {
  if (bytes[8] !== 1) return undefined;
  const keyLength =
    ((bytes[9] as number) << 24) | ((bytes[10] as number) << 16) | ((bytes[11] as number) << 8) | (bytes[12] as number);
  if (keyLength < 6) return undefined;
  const roleLength = ((bytes[KEY_AT + 4] as number) << 8) | (bytes[KEY_AT + 5] as number);
  return 6 + roleLength > keyLength ? undefined : bytes.subarray(ROLE_AT, ROLE_AT + roleLength);
}

/** Whether a reader of the role needs this record: it is about the role, or its key is of another form, so that every reader reports it. */
export function concernsRole(bytes: Uint8Array, role: Uint8Array): boolean {
  const found = roleIn(bytes);
  if (found === undefined) return true;
  return role.length === found.length && role.every((byte, index) => byte === found[index]);
}
