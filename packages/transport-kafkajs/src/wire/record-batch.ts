import type { RawRecord } from "@krabka/core";
import { ByteReader, WireFormatError } from "./byte-reader.js";
import { ByteWriter } from "./byte-writer.js";
import { crc32c } from "./crc32c.js";

// Record batch, magic 2 (KIP-98): fixed header, then records with varint fields relative to it.
const HEADER_BYTES = 61;
const LENGTH_AT = 8;
const MAGIC_AT = 16;
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;
const MAGIC = 2;

const COMPRESSION_MASK = 0x07;
const LOG_APPEND_TIME = 0x08;
const TRANSACTIONAL = 0x10;
const CONTROL = 0x20;

/** `producerId: -1n` is an ordinary producer without idempotence. */
export interface BatchIdentity {
  readonly producerId: bigint;
  readonly epoch: number;
  readonly baseSequence: number;
  readonly transactional: boolean;
}

export const ORDINARY_PRODUCER: BatchIdentity = {
  producerId: -1n,
  epoch: -1,
  baseSequence: -1,
  transactional: false,
};

export interface TimedRecord extends RawRecord {
  readonly timestampMs: number;
}

const writeNullable = (to: ByteWriter, bytes: Uint8Array | null): void => {
  if (bytes === null) to.varint(-1);
  else to.varint(bytes.length).raw(bytes);
};

const writeRecord = (to: ByteWriter, body: ByteWriter): void => {
  to.varint(body.length).raw(body.bytes);
};

/** Encodes at least one record as one uncompressed batch. */
export function encodeBatch(records: readonly TimedRecord[], identity: BatchIdentity): Buffer {
  const first = records[0];
  if (first === undefined) throw new RangeError("A batch holds at least one record; got none");
  const firstAtMs = first.timestampMs;
  const newestAtMs = records.reduce((newest, { timestampMs }) => Math.max(newest, timestampMs), firstAtMs);
  const batch = new ByteWriter(512);
  batch
    .int64(0n)
    .int32(0)
    .int32(-1)
    .int8(MAGIC)
    .uint32(0)
    .int16(identity.transactional ? TRANSACTIONAL : 0)
    .int32(records.length - 1)
    .int64(BigInt(firstAtMs))
    .int64(BigInt(newestAtMs))
    .int64(identity.producerId)
    .int16(identity.epoch)
    .int32(identity.baseSequence)
    .int32(records.length);
  records.forEach((record, index) => {
    const body = new ByteWriter(128);
    body
      .int8(0)
      .varlong(BigInt(record.timestampMs - firstAtMs))
      .varint(index);
    writeNullable(body, record.key);
    writeNullable(body, record.value);
    body.varint(record.headers.length);
    for (const { key, value } of record.headers) {
      const name = Buffer.from(key, "utf8");
      body.varint(name.length).raw(name);
      writeNullable(body, value);
    }
    writeRecord(batch, body);
  });
  const bytes = batch.bytes;
  bytes.writeInt32BE(bytes.length - LENGTH_AT - 4, LENGTH_AT);
  bytes.writeUInt32BE(crc32c(bytes, ATTRIBUTES_AT), CRC_AT);
  return bytes;
}

export interface FetchedRecord extends RawRecord {
  readonly offset: bigint;
  readonly timestampMs: number;
}

/** What a batch of the log says. */
export type BatchContent =
  | { readonly kind: "records"; readonly records: readonly FetchedRecord[] }
  | { readonly kind: "marker"; readonly committed: boolean }
  /** A control batch of another kind, such as a leader change. */
  | { readonly kind: "other-control" }
  | { readonly kind: "malformed"; readonly error: Error };

export interface FetchedBatch {
  readonly baseOffset: bigint;
  readonly lastOffset: bigint;
  readonly leaderEpoch: number;
  readonly producerId: bigint;
  readonly transactional: boolean;
  /** The topic stamps records itself, so their timestamps are the log's own clock. */
  readonly stampedByLog: boolean;
  readonly content: BatchContent;
}

/** Decompresses the records of a batch; `codec` is the number in the batch's attributes. */
export type Decompress = (codec: number, bytes: Buffer) => Promise<Buffer>;

const asError = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(String(thrown)));

/** Reads whole batches; a batch that is cut at the end, as brokers send it, is left out. */
export async function decodeBatches(bytes: Buffer, decompress: Decompress): Promise<FetchedBatch[]> {
  const batches: FetchedBatch[] = [];
  let at = 0;
  while (at + LENGTH_AT + 4 <= bytes.length) {
    const size = LENGTH_AT + 4 + bytes.readInt32BE(at + LENGTH_AT);
    if (size <= LENGTH_AT + 4 || at + size > bytes.length) break;
    const batch = bytes.subarray(at, at + size);
    const codec = codecOf(batch);
    // Nothing is awaited for what Krabka writes itself: a replay has a batch for each record.
    const plain = codec === 0 ? batch.subarray(HEADER_BYTES) : await inflate(codec, batch, decompress);
    batches.push(decodeBatch(batch, plain));
    at += size;
  }
  return batches;
}

const isReadable = (batch: Buffer): boolean => batch.length >= HEADER_BYTES && batch.readInt8(MAGIC_AT) === MAGIC;

const codecOf = (batch: Buffer): number =>
  isReadable(batch) ? batch.readInt16BE(ATTRIBUTES_AT) & COMPRESSION_MASK : 0;

const inflate = async (codec: number, batch: Buffer, decompress: Decompress): Promise<Buffer | Error> => {
  try {
    return await decompress(codec, batch.subarray(HEADER_BYTES));
  } catch (thrown) {
    return asError(thrown);
  }
};

const decodeBatch = (batch: Buffer, plain: Buffer | Error): FetchedBatch => {
  const baseOffset = batch.readBigInt64BE(0);
  if (!isReadable(batch)) {
    const error = new WireFormatError(`The batch at offset ${baseOffset} is not of format ${MAGIC}`);
    return {
      baseOffset,
      lastOffset: baseOffset,
      leaderEpoch: -1,
      producerId: -1n,
      transactional: false,
      stampedByLog: false,
      content: { kind: "malformed", error },
    };
  }
  const attributes = batch.readInt16BE(ATTRIBUTES_AT);
  return {
    baseOffset,
    lastOffset: baseOffset + BigInt(batch.readInt32BE(23)),
    leaderEpoch: batch.readInt32BE(12),
    producerId: batch.readBigInt64BE(43),
    transactional: (attributes & TRANSACTIONAL) !== 0,
    stampedByLog: (attributes & LOG_APPEND_TIME) !== 0,
    content: decodeContent(batch, plain, attributes),
  };
};

const decodeContent = (batch: Buffer, plain: Buffer | Error, attributes: number): BatchContent => {
  try {
    if (plain instanceof Error) throw plain;
    if (batch.readUInt32BE(CRC_AT) !== crc32c(batch, ATTRIBUTES_AT)) {
      throw new WireFormatError("The batch does not match its checksum");
    }
    const logAtMs = (attributes & LOG_APPEND_TIME) !== 0 ? Number(batch.readBigInt64BE(35)) : undefined;
    const records = decodeRecords(batch, plain, logAtMs);
    return (attributes & CONTROL) !== 0 ? decodeControl(records) : { kind: "records", records };
  } catch (thrown) {
    return { kind: "malformed", error: asError(thrown) };
  }
};

const readNullable = (from: ByteReader): Buffer | null => {
  const length = from.varint();
  return length < 0 ? null : from.raw(length);
};

const decodeRecords = (batch: Buffer, plain: Buffer, logAtMs: number | undefined): FetchedRecord[] => {
  const baseOffset = batch.readBigInt64BE(0);
  const firstAtMs = Number(batch.readBigInt64BE(27));
  const count = batch.readInt32BE(57);
  const from = new ByteReader(plain);
  const records: FetchedRecord[] = [];
  for (let i = 0; i < count; i++) {
    const end = from.varint() + from.position;
    from.int8();
    const atMs = firstAtMs + from.varlongNumber();
    const delta = from.varint();
    const offset = delta === 0 ? baseOffset : baseOffset + BigInt(delta);
    const key = readNullable(from);
    const value = readNullable(from);
    const headers: { key: string; value: Uint8Array }[] = [];
    for (let h = from.varint(); h > 0; h--) {
      const name = readNullable(from)?.toString("utf8") ?? "";
      headers.push({ key: name, value: readNullable(from) ?? Buffer.alloc(0) });
    }
    if (from.position !== end) {
      throw new WireFormatError(`The record at offset ${offset} ends at byte ${from.position}; ${end} is stated`);
    }
    records.push({ offset, timestampMs: logAtMs ?? atMs, key, value, headers });
  }
  return records;
};

const decodeControl = (records: readonly FetchedRecord[]): BatchContent => {
  const key = records[0]?.key;
  // A cleaned control batch may be empty: it ends nothing that is still held.
  if (key === null || key === undefined || key.length < 4) return { kind: "other-control" };
  const type = new ByteReader(key, 2).int16();
  return type === 0 || type === 1 ? { kind: "marker", committed: type === 1 } : { kind: "other-control" };
};
