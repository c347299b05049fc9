import { KrabkaError, type OutgoingRecord, partitionForRecord, type RecordPosition } from "@krabka/core";
import { encodeRecord } from "../broker/record-bytes.js";
import type { RecordBatch, Written } from "../broker/request.js";

/** Records sorted by partition, with the way back to the order in which they were given. */
export interface Placement {
  readonly batches: readonly RecordBatch[];
  positions(written: Written): readonly RecordPosition[];
}

/** As Kafka's `message.max.bytes`. */
const MAX_RECORD_BYTES = 1024 * 1024;

/**
 * @param spread Where records without a key go next: one partition after the other.
 * @throws {KrabkaError} `INVALID_ARGUMENT`
 */
export function place(
  records: readonly OutgoingRecord[],
  partitionsOf: ReadonlyMap<string, number>,
  nowMs: number,
  spread: number,
): Placement {
  const batches = new Map<string, RecordBatch & { readonly records: Uint8Array[] }>();
  const places = records.map((record, index) => {
    const { topic } = record;
    const target = { topic, partition: partitionForRecord(record, partitionsOf.get(topic) ?? 0, spread + index) };
    const name = `${target.partition}/${target.topic}`;
    const batch = batches.get(name) ?? { ...target, records: [] };
    batches.set(name, batch);
    batch.records.push(encoded(record, record.timestampMs ?? nowMs));
    return { name, target, index: batch.records.length - 1 };
  });
  const names = [...batches.keys()];
  return {
    batches: [...batches.values()],
    positions: ({ bases, atMs }) =>
      places.map(({ name, target, index }) => ({
        ...target,
        offset: (bases[names.indexOf(name)] ?? 0n) + BigInt(index),
        appendedAtMs: atMs,
      })),
  };
}

const encoded = (record: OutgoingRecord, timestampMs: number): Uint8Array => {
  const bytes = encodeRecord({ ...record, timestampMs });
  if (bytes.length <= MAX_RECORD_BYTES) return bytes;
  throw new KrabkaError(
    "INVALID_ARGUMENT",
    `A record takes at most ${MAX_RECORD_BYTES} bytes; one for topic ${JSON.stringify(record.topic)} takes ${bytes.length}`,
  );
};
