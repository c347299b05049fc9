import { KrabkaError, type OutgoingRecord, partitionForRecord, type RecordPosition } from "@krabka/core";
import { recordBytes } from "../cluster/partition-log.js";
import type { PartitionRef, ProduceBatch } from "../cluster/protocol.js";

/** Leaves room below the broker's default of 1 MiB for a batch. */
const MAX_BATCH_BYTES = 1_000_000;

/** What one produce request carries. */
export interface PlannedBatch {
  readonly target: PartitionRef;
  readonly records: ProduceBatch["records"][number][];
  /** Where each record stood in the caller's input. */
  readonly indexes: number[];
}

export const partitionKey = ({ topic, partition }: PartitionRef): string => `${topic}/${partition}`;

export const positionOf = (
  { topic, partition }: PartitionRef,
  offset: bigint,
  appendedAtMs: number | undefined,
): RecordPosition => ({ topic, partition, offset, appendedAtMs });

/**
 * Splits records by partition, in their order, into batches that the broker takes.
 *
 * @param keylessFrom where records without key start their round over the partitions
 * @throws {KrabkaError} `INVALID_ARGUMENT` for a partition that is not there or a record that no batch holds
 */
export const planBatches = (
  records: readonly OutgoingRecord[],
  partitionsOf: ReadonlyMap<string, number>,
  timestampMs: number,
  keylessFrom: number,
): readonly PlannedBatch[] => {
  const batches: PlannedBatch[] = [];
  const open = new Map<string, { batch: PlannedBatch; bytes: number }>();
  for (const [index, record] of records.entries()) {
    const count = partitionsOf.get(record.topic) ?? 0;
    const target = { topic: record.topic, partition: partitionForRecord(record, count, keylessFrom + index) };
    const stamped = { ...record, timestampMs: record.timestampMs ?? timestampMs };
    const size = recordBytes(stamped);
    if (size > MAX_BATCH_BYTES) {
      throw new KrabkaError("INVALID_ARGUMENT", `A record takes at most ${MAX_BATCH_BYTES} bytes; got ${size}`);
    }
    let current = open.get(partitionKey(target));
    if (current === undefined || current.bytes + size > MAX_BATCH_BYTES) {
      current = { batch: { target, records: [], indexes: [] }, bytes: 0 };
      open.set(partitionKey(target), current);
      batches.push(current.batch);
    }
    current.bytes += size;
    current.batch.records.push(stamped);
    current.batch.indexes.push(index);
  }
  return batches;
};
