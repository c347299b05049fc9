import type { ProducerPair, RecordPosition, TopicPartition, WriteOutcome } from "@krabka/core";
import type { Produced } from "./produce.js";
import type { ProducePartition } from "./wire/log-requests.js";
import { encodeBatch, type TimedRecord } from "./wire/record-batch.js";

/** A batch that is to be written, with the place of each of its records in the caller's list. */
export interface PlannedBatch extends ProducePartition {
  readonly indices: readonly number[];
}

/** Below the default limit of brokers for a batch (1 MiB), with room for its header. */
const MAX_BATCH_BYTES = 768 * 1024;
/** More than the lengths, deltas and header names around a small record take. */
const RECORD_OVERHEAD_BYTES = 64;

const keyOf = ({ topic, partition }: TopicPartition): string => `${partition} ${topic}`;

/** Sequence numbers of one pair: they start at 0 in each partition and wrap from 2^31-1 to 0. */
export class Sequences {
  readonly #next = new Map<string, number>();

  next(target: TopicPartition): number {
    return this.#next.get(keyOf(target)) ?? 0;
  }

  advance(target: TopicPartition, by: number): void {
    this.#next.set(keyOf(target), sequenceAfter(this.next(target), by));
  }
}

const sequenceAfter = (sequence: number, by: number): number => (sequence + by) % 2 ** 31;

/** One record with its place: in the log, and in the caller's list. */
export interface PlacedRecord {
  readonly target: TopicPartition;
  readonly record: TimedRecord;
}

interface Chunk {
  readonly target: TopicPartition;
  readonly records: TimedRecord[];
  readonly indices: number[];
  bytes: number;
}

const sizeOf = ({ key, value, headers }: TimedRecord): number =>
  headers.reduce(
    (sum, header) => sum + header.key.length * 3 + header.value.length + 10,
    RECORD_OVERHEAD_BYTES + (key?.length ?? 0) + (value?.length ?? 0),
  );

/**
 * Splits records into rounds of at most one batch for each partition. Rounds are written one after the other, so the
 * records of a partition keep their order.
 */
export function planRounds(
  records: readonly PlacedRecord[],
  pair: ProducerPair,
  sequences: Sequences,
): readonly (readonly PlannedBatch[])[] {
  const partitions = new Map<string, Chunk[]>();
  records.forEach(({ target, record }, index) => {
    const key = keyOf(target);
    const chunks = partitions.get(key) ?? [];
    partitions.set(key, chunks);
    const bytes = sizeOf(record);
    const last = chunks.at(-1);
    if (last === undefined || last.bytes + bytes > MAX_BATCH_BYTES) {
      chunks.push({ target, records: [record], indices: [index], bytes });
    } else {
      last.records.push(record);
      last.indices.push(index);
      last.bytes += bytes;
    }
  });
  const rounds: PlannedBatch[][] = [];
  for (const chunks of partitions.values()) {
    let baseSequence = chunks[0] === undefined ? 0 : sequences.next(chunks[0].target);
    chunks.forEach(({ target, records: batched, indices }, round) => {
      const batch = encodeBatch(batched, { ...pair, baseSequence, transactional: true });
      baseSequence = sequenceAfter(baseSequence, batched.length);
      const planned = rounds[round] ?? [];
      rounds[round] = planned;
      planned.push({ ...target, batch, indices });
    });
  }
  return rounds;
}

/** One non-transactional batch under a pair. */
export const planBatch = (
  target: TopicPartition,
  records: readonly TimedRecord[],
  pair: ProducerPair,
  baseSequence: number,
): PlannedBatch => ({
  ...target,
  batch: encodeBatch(records, { ...pair, baseSequence, transactional: false }),
  indices: records.map((_, index) => index),
});

/** Positions in the order of the caller's records. */
export const committedAt = (batches: readonly PlannedBatch[], produced: readonly Produced[]): WriteOutcome => {
  const positions: RecordPosition[] = [];
  batches.forEach(({ topic, partition, indices }, place) => {
    const result = produced[place];
    if (result?.status !== "written") return;
    indices.forEach((index, nth) => {
      positions[index] = {
        topic,
        partition,
        offset: result.baseOffset + BigInt(nth),
        appendedAtMs: result.appendedAtMs,
      };
    });
  });
  return { status: "committed", positions };
};
