import type { Clock, ReadRecord } from "@krabka/core";
import {
  type AbortedTransaction,
  type FullTopicSettings,
  type Isolation,
  KafkaCode,
  NO_EPOCH,
  NO_PRODUCER_ID,
  NO_SEQUENCE,
  type ProduceBatch,
  type Refusal,
  refuse,
  type StoredBatch,
  type StoredRecord,
} from "./protocol.js";

/** What a partition remembers of one producer id (Kafka's `ProducerStateEntry`). */
interface ProducerState {
  epoch: number;
  lastSequence: number;
  lastTimestampMs: number;
  transactionStart: bigint | undefined;
  /** The newest batches, five as in Kafka: a request that is repeated is recognised by them. */
  recent: { readonly first: number; readonly last: number; readonly baseOffset: bigint }[];
}

const RECENT_BATCHES = 5;
const MAX_SEQUENCE = 2 ** 31 - 1;

/** The sequence number after `count` more records: it wraps to 0 after 2^31-1. */
const sequencePlus = (sequence: number, count: number): number =>
  sequence > MAX_SEQUENCE - count ? count - (MAX_SEQUENCE - sequence) - 1 : sequence + count;

export interface LogLimits {
  readonly maxBatchBytes: number;
  readonly producerIdExpirationMs: number;
}

type Appended = { readonly ok: true; readonly baseOffset: bigint; readonly appendedAtMs: number | undefined };

/**
 * One partition: batches, the producers it knows, and the offsets that readers go by. Checks an append in the order of
 * Kafka's `UnifiedLog` and `ProducerAppendInfo`. There is no replication lag: the high watermark is the end.
 */
export class PartitionLog {
  readonly settings: FullTopicSettings;
  readonly #clock: Clock;
  readonly #limits: LogLimits;
  readonly #producers = new Map<bigint, ProducerState>();
  readonly #waiters = new Set<() => void>();
  #batches: StoredBatch[] = [];
  #aborted: AbortedTransaction[] = [];
  #startOffset = 0n;
  #endOffset = 0n;

  constructor(settings: FullTopicSettings, clock: Clock, limits: LogLimits) {
    this.settings = settings;
    this.#clock = clock;
    this.#limits = limits;
  }

  get startOffset(): bigint {
    return this.#startOffset;
  }

  get highWatermark(): bigint {
    return this.#endOffset;
  }

  /** Everything below it is decided. */
  get lastStableOffset(): bigint {
    let stable = this.#endOffset;
    for (const { transactionStart } of this.#producers.values()) {
      if (transactionStart !== undefined && transactionStart < stable) stable = transactionStart;
    }
    return stable;
  }

  hasOpenTransaction(producerId: bigint): boolean {
    return this.#producers.get(producerId)?.transactionStart !== undefined;
  }

  append(batch: ProduceBatch): Appended | Refusal {
    if (batchBytes(batch) > this.#limits.maxBatchBytes) return refuse(KafkaCode.MESSAGE_TOO_LARGE);
    if (this.settings.cleanupPolicy.includes("compact") && batch.records.some(({ key }) => key === null)) {
      return refuse(KafkaCode.INVALID_RECORD);
    }
    if (batch.producerId === NO_PRODUCER_ID) return this.#store(batch);
    const state = this.#stateOf(batch.producerId);
    const last = sequencePlus(batch.baseSequence, batch.records.length - 1);
    const repeated =
      state?.epoch === batch.epoch
        ? state.recent.find((one) => one.first === batch.baseSequence && one.last === last)
        : undefined;
    if (repeated !== undefined) {
      return { ok: true, baseOffset: repeated.baseOffset, appendedAtMs: this.#appendedAtMs() };
    }
    const code = this.#refusalOf(batch, state);
    if (code !== undefined) return refuse(code);
    const appended = this.#store(batch);
    const earlier = state?.epoch === batch.epoch ? state.recent : [];
    const newest = { first: batch.baseSequence, last, baseOffset: appended.baseOffset };
    this.#producers.set(batch.producerId, {
      epoch: batch.epoch,
      lastSequence: last,
      lastTimestampMs: appended.appendedAtMs ?? batch.records.at(-1)?.timestampMs ?? this.#clock.wallMs(),
      transactionStart: batch.transactional ? (state?.transactionStart ?? appended.baseOffset) : undefined,
      recent: [...earlier, newest].slice(-RECENT_BATCHES),
    });
    return appended;
  }

  /** Writes a control marker; it takes an offset also where the transaction wrote nothing here. */
  appendMarker(producerId: bigint, epoch: number, commit: boolean): { readonly ok: true } | Refusal {
    const state = this.#stateOf(producerId);
    if (state !== undefined && epoch < state.epoch) return refuse(KafkaCode.INVALID_PRODUCER_EPOCH);
    const markerOffset = this.#endOffset;
    if (!commit && state?.transactionStart !== undefined) {
      this.#aborted.push({ producerId, firstOffset: state.transactionStart, markerOffset });
    }
    const sameEpoch = state?.epoch === epoch;
    this.#producers.set(producerId, {
      epoch,
      lastSequence: sameEpoch ? state.lastSequence : NO_SEQUENCE,
      lastTimestampMs: this.#clock.wallMs(),
      transactionStart: undefined,
      recent: sameEpoch ? state.recent : [],
    });
    this.#push({
      baseOffset: markerOffset,
      lastOffset: markerOffset,
      records: [],
      producerId,
      epoch,
      baseSequence: NO_SEQUENCE,
      transactional: true,
      control: commit ? "commit" : "abort",
      appendedAtMs: this.#appendedAtMs(),
    });
    return { ok: true };
  }

  /** Batches from the one that holds `offset`, up to `end`; undefined where the log no longer or not yet has it. */
  read(offset: bigint, end: bigint): readonly StoredBatch[] | undefined {
    if (offset < this.#startOffset || offset > this.#endOffset) return undefined;
    let low = 0;
    let high = this.#batches.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#batches[middle] as StoredBatch).lastOffset < offset) low = middle + 1;
      else high = middle;
    }
    const batches: StoredBatch[] = [];
    for (let i = low; i < this.#batches.length && batches.length < 500; i++) {
      const batch = this.#batches[i] as StoredBatch;
      if (batch.baseOffset >= end) break;
      batches.push(batch);
    }
    return batches;
  }

  /** All records that a reader of this isolation level gets to see at this moment. */
  visible(isolation: Isolation): readonly ReadRecord[] {
    const committed = isolation === "read_committed";
    const end = committed ? this.lastStableOffset : this.#endOffset;
    return this.#batches.flatMap((batch) =>
      batch.records
        .filter(({ offset }) => offset >= this.#startOffset && offset < end)
        .filter(({ offset }) => !committed || !this.#isAborted(batch, offset))
        .map(({ key, value, headers, offset }) => ({ key, value, headers, offset })),
    );
  }

  abortedFrom(offset: bigint): readonly AbortedTransaction[] {
    return this.#aborted.filter((one) => one.markerOffset >= offset);
  }

  /** Calls `wake` once, after the next append. @returns stops waiting */
  onAppend(wake: () => void): () => void {
    this.#waiters.add(wake);
    return () => this.#waiters.delete(wake);
  }

  /** Removes everything before `offset`, as the DeleteRecords API does; -1 stands for the high watermark. */
  deleteRecords(offset: bigint): void {
    const start = offset === -1n ? this.#endOffset : offset;
    if (start < this.#startOffset || start > this.#endOffset) {
      throw new RangeError(`Records can be deleted up to ${this.#startOffset}..${this.#endOffset}; got ${start}`);
    }
    this.#startOffset = start;
    this.#batches = this.#batches.filter((batch) => batch.lastOffset >= start);
  }

  /**
   * Compacts what is below the last stable offset: of each key the newest committed record stays, at its offset; records
   * of aborted transactions go; tombstones go when they are older than the topic's delete retention. Markers stay.
   */
  compact(): void {
    const stable = this.lastStableOffset;
    const keyOf = (record: StoredRecord) => (record.key === null ? undefined : Buffer.from(record.key).toString("hex"));
    const newest = new Map<string, bigint>();
    const stableBatches = this.#batches.filter((batch) => batch.lastOffset < stable);
    for (const batch of stableBatches) {
      for (const record of batch.records) {
        const key = keyOf(record);
        if (key !== undefined && !this.#isAborted(batch, record.offset)) newest.set(key, record.offset);
      }
    }
    const horizonMs = this.#clock.wallMs() - this.settings.deleteRetentionMs;
    const survives = (batch: StoredBatch, record: StoredRecord) => {
      if (this.#isAborted(batch, record.offset)) return false;
      const key = keyOf(record);
      if (key === undefined || newest.get(key) !== record.offset) return false;
      return record.value !== null || record.timestampMs > horizonMs;
    };
    this.#batches = this.#batches.flatMap((batch) => {
      if (batch.lastOffset >= stable || batch.control !== undefined) return [batch];
      const records = batch.records.filter((record) => survives(batch, record));
      // The last batch stays, if need be without records, so that a reader gets to the end.
      return records.length === 0 && batch.lastOffset + 1n < this.#endOffset ? [] : [{ ...batch, records }];
    });
  }

  #isAborted({ producerId, transactional }: StoredBatch, offset: bigint): boolean {
    if (!transactional) return false;
    return this.#aborted.some(
      (one) => one.producerId === producerId && one.firstOffset <= offset && offset < one.markerOffset,
    );
  }

  /** Drops producers that were silent for too long; Kafka looks every ten minutes, this log at each append. */
  #stateOf(producerId: bigint): ProducerState | undefined {
    const state = this.#producers.get(producerId);
    if (state === undefined || state.transactionStart !== undefined) return state;
    if (this.#clock.wallMs() - state.lastTimestampMs < this.#limits.producerIdExpirationMs) return state;
    this.#producers.delete(producerId);
    return undefined;
  }

  #refusalOf(batch: ProduceBatch, state: ProducerState | undefined): number | undefined {
    if (state === undefined) return undefined;
    if (batch.epoch < state.epoch) return KafkaCode.INVALID_PRODUCER_EPOCH;
    const expected = batch.epoch === state.epoch ? sequencePlus(state.lastSequence, 1) : 0;
    if (state.epoch !== NO_EPOCH && batch.baseSequence !== expected) return KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER;
    if (state.transactionStart !== undefined && !batch.transactional) return KafkaCode.INVALID_TXN_STATE;
    return undefined;
  }

  #appendedAtMs(): number | undefined {
    return this.settings.timestampType === "LogAppendTime" ? this.#clock.wallMs() : undefined;
  }

  #store(batch: ProduceBatch): Appended {
    const baseOffset = this.#endOffset;
    const appendedAtMs = this.#appendedAtMs();
    const records = batch.records.map((record, index) => ({
      key: record.key,
      value: record.value,
      headers: record.headers,
      offset: baseOffset + BigInt(index),
      timestampMs: appendedAtMs ?? record.timestampMs,
    }));
    this.#push({
      baseOffset,
      lastOffset: baseOffset + BigInt(records.length - 1),
      records,
      producerId: batch.producerId,
      epoch: batch.epoch,
      baseSequence: batch.baseSequence,
      transactional: batch.transactional,
      control: undefined,
      appendedAtMs,
    });
    return { ok: true, baseOffset, appendedAtMs };
  }

  #push(batch: StoredBatch): void {
    this.#batches.push(batch);
    this.#endOffset = batch.lastOffset + 1n;
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const wake of waiters) wake();
  }
}

/** About what a record takes on the wire. */
export const recordBytes = (record: ProduceBatch["records"][number] | StoredRecord): number =>
  20 +
  (record.key?.length ?? 0) +
  (record.value?.length ?? 0) +
  record.headers.reduce((sum, header) => sum + 8 + header.key.length + header.value.length, 0);

const BATCH_OVERHEAD_BYTES = 61;

const batchBytes = (batch: ProduceBatch): number =>
  batch.records.reduce((sum, record) => sum + recordBytes(record), BATCH_OVERHEAD_BYTES);
