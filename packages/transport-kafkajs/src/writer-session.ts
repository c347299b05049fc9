import {
  type CallOptions,
  FencedError,
  KrabkaError,
  MAX_EPOCH,
  type OutgoingRecord,
  partitionForKey,
  type ProducerPair,
  type RawRecord,
  type RecordPosition,
  type Role,
  type TopicPartition,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import type { Deadline } from "./deadline.js";
import { meaningOf } from "./error-codes.js";
import { mintAgain } from "./mint.js";
import { type Produced, produceAll } from "./produce.js";
import { abortTransaction, commitTransaction, runTransaction, TransactionRefused, type Unsettled } from "./transaction.js";
import type { ProducePartition } from "./wire/log-requests.js";
import { encodeBatch, type TimedRecord } from "./wire/record-batch.js";

export interface SessionContext {
  readonly map: ClusterMap;
  readonly role: Role;
  readonly transactionTimeoutMs: number;
  /** Why fenced appends can't be used, or undefined. */
  readonly fencedAppendRefusal: () => string | undefined;
  readonly onClose: () => void;
}

/** A batch that is to be written, with the place of each of its records in the caller's list. */
interface PlannedBatch extends ProducePartition {
  readonly indices: readonly number[];
}

/** An append that may have been written: the same bytes settle it. */
interface UnsettledAppend {
  readonly batch: PlannedBatch;
}

/** How long the farewell may take: it only spares the successor the wait for an open transaction. */
const CLOSE_TIMEOUT_MS = 1000;
/** Share of a re-mint's time that settling the unknown write may take. */
const SETTLING_SHARE = 0.5;

const keyOf = ({ topic, partition }: TopicPartition): string => `${partition} ${topic}`;

/** Sequence numbers wrap from 2^31-1 to 0. */
const advanced = (sequence: number, by: number): number => (sequence + by) % 2 ** 31;

/** A writer under one pair. Calls run one at a time, in their order. */
export class KafkaJsWriterSession implements WriterSession {
  readonly role: Role;
  readonly #context: SessionContext;
  readonly #map: ClusterMap;
  #pair: ProducerPair;
  #mustRemint = false;
  #unsettled: Unsettled | UnsettledAppend | undefined;
  #fenced: Error | undefined;
  #closed = false;
  #queue: Promise<unknown> = Promise.resolve();
  /** Next sequence number by partition; a new epoch starts at 0 everywhere. */
  #sequences = new Map<string, number>();

  constructor(context: SessionContext, pair: ProducerPair) {
    this.#context = context;
    this.#map = context.map;
    this.role = context.role;
    this.#pair = pair;
  }

  get pair(): ProducerPair {
    return this.#pair;
  }

  get mustRemint(): boolean {
    return this.#mustRemint;
  }

  commit(records: readonly OutgoingRecord[], options?: CallOptions): Promise<WriteOutcome> {
    return this.#inTurn(options, (deadline) => this.#commit(records, deadline));
  }

  append(target: TopicPartition, records: readonly RawRecord[], options?: CallOptions): Promise<WriteOutcome> {
    return this.#inTurn(options, async (deadline) => {
      this.#requireFencedAppend();
      if (records.length === 0) return { status: "committed", positions: [] };
      const timed = records.map((record) => ({ ...record, timestampMs: this.#map.clock.wallMs() }));
      return this.#append(this.#plan(target, timed, this.#pair, this.#sequenceOf(target)), deadline);
    });
  }

  retire(producerId: bigint, target: TopicPartition, record: RawRecord, options?: CallOptions): Promise<WriteOutcome> {
    return this.#inTurn(options, async (deadline) => {
      this.#requireFencedAppend();
      if (producerId === this.#pair.producerId) {
        throw new KrabkaError("INVALID_ARGUMENT", `The session's own producer id can't be retired; got ${producerId}`);
      }
      const timed = [{ ...record, timestampMs: this.#map.clock.wallMs() }];
      const batch = this.#plan(target, timed, { producerId, epoch: MAX_EPOCH }, 0);
      const { results } = await produceAll(this.#map, [batch], { transactionalId: null, repeatable: true }, deadline);
      const result = results[0] as Produced;
      if (result.status === "written") return committed([batch], results);
      // The pair is not this session's: its refusal says nothing about it, and no later request can confuse another one.
      return result.doubtful
        ? { status: "unknown", cause: result.error }
        : { status: "aborted", cause: result.error };
    });
  }

  remint(options?: CallOptions): Promise<WriteOutcome | undefined> {
    const deadline = this.#map.deadline(options);
    return this.#enqueue(deadline, async () => {
      if (this.#fenced !== undefined) {
        throw new FencedError(`Role ${JSON.stringify(this.role)}: the pair is dead`, { role: this.role, cause: this.#fenced });
      }
      const settled = this.#unsettled === undefined ? undefined : await this.#settle(deadline.part(SETTLING_SHARE));
      try {
        this.#pair = await mintAgain(this.#map, this.role, this.#context.transactionTimeoutMs, this.#pair, deadline);
      } catch (error) {
        if (FencedError.is(error)) this.#fenced = error;
        throw error;
      }
      const outcome = this.#unsettled === undefined ? settled : (settled ?? unknownSince(this.#unsettled));
      this.#sequences = new Map();
      this.#unsettled = undefined;
      this.#mustRemint = false;
      return outcome;
    });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    try {
      await this.#queue.catch(() => undefined);
      if (this.#unsettled === "abort" && this.#fenced === undefined) {
        await abortTransaction(this.#authority(), this.#map.deadline({ timeoutMs: CLOSE_TIMEOUT_MS }));
      }
    } finally {
      this.#context.onClose();
    }
  }

  #authority() {
    return { map: this.#map, role: this.role, pair: this.#pair };
  }

  #requireFencedAppend(): void {
    const refusal = this.#context.fencedAppendRefusal();
    if (refusal !== undefined) throw new KrabkaError("UNSUPPORTED", `Fenced append: ${refusal}`, { role: this.role });
  }

  #inTurn(
    options: CallOptions | undefined,
    write: (deadline: Deadline) => Promise<WriteOutcome>,
  ): Promise<WriteOutcome> {
    let deadline: Deadline;
    try {
      deadline = this.#map.deadline(options);
    } catch (error) {
      return Promise.reject(error);
    }
    return this.#enqueue(deadline, async () => {
      if (this.#fenced !== undefined) return { status: "fenced", cause: this.#fenced };
      if (this.#mustRemint) {
        throw new KrabkaError("UNKNOWN_OUTCOME", "An earlier write lost an answer; the session must re-mint first", {
          role: this.role,
        });
      }
      const ended = deadline.ended;
      if (ended !== undefined) return { status: "aborted", cause: ended };
      const outcome = await write(deadline);
      if (outcome.status === "fenced") this.#fenced = outcome.cause;
      return outcome;
    });
  }

  #enqueue<T>(_deadline: Deadline, work: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new KrabkaError("CLOSED", "The session was closed", { role: this.role }));
    const done = this.#queue.then(work);
    this.#queue = done.catch(() => undefined);
    return done;
  }

  #sequenceOf(target: TopicPartition): number {
    return this.#sequences.get(keyOf(target)) ?? 0;
  }

  #plan(
    { topic, partition }: TopicPartition,
    records: readonly TimedRecord[],
    pair: ProducerPair,
    baseSequence: number,
    transactional = false,
    indices: readonly number[] = records.map((_, index) => index),
  ): PlannedBatch {
    const batch = encodeBatch(records, { ...pair, baseSequence, transactional });
    return { topic, partition, batch, indices };
  }

  async #commit(records: readonly OutgoingRecord[], deadline: Deadline): Promise<WriteOutcome> {
    if (records.length === 0) return { status: "committed", positions: [] };
    const targets = new Map<string, { target: TopicPartition; records: TimedRecord[]; indices: number[] }>();
    let index = 0;
    for (const record of records) {
      let partition: number;
      try {
        partition = await this.#partitionOf(record, deadline);
      } catch (error) {
        if (KrabkaError.is(error) && ["TIMEOUT", "ABORTED", "UNREACHABLE"].includes(error.code)) {
          return { status: "aborted", cause: error };
        }
        throw error;
      }
      const target = { topic: record.topic, partition };
      const timestampMs = Math.trunc(record.timestampMs ?? this.#map.clock.wallMs());
      const known = targets.get(keyOf(target));
      if (known === undefined) {
        targets.set(keyOf(target), { target, records: [{ ...record, timestampMs }], indices: [index] });
      } else {
        known.records.push({ ...record, timestampMs });
        known.indices.push(index);
      }
      index += 1;
    }
    const batches = [...targets.values()].map(({ target, records: batched, indices }) =>
      this.#plan(target, batched, this.#pair, this.#sequenceOf(target), true, indices),
    );
    let report: Awaited<ReturnType<typeof runTransaction>>;
    try {
      report = await runTransaction(this.#authority(), batches, deadline);
    } catch (error) {
      if (!(error instanceof TransactionRefused)) throw error;
      this.#note(error.mustRemint, error.mustRemint ? "abort" : undefined);
      throw error.reason;
    }
    report.produced.forEach((produced, place) => {
      const batch = batches[place];
      if (produced.status === "written" && batch !== undefined) this.#advance(batch);
    });
    this.#note(report.mustRemint, report.unsettled);
    if (report.outcome.status === "unknown") this.#uncommitted = { batches, produced: report.produced };
    return report.outcome.status === "committed" ? committed(batches, report.produced) : report.outcome;
  }

  /** Where the records of an unknown commit stand, if it was one. */
  #uncommitted: { readonly batches: readonly PlannedBatch[]; readonly produced: readonly Produced[] } | undefined;

  async #append(batch: PlannedBatch, deadline: Deadline): Promise<WriteOutcome> {
    const { results } = await produceAll(this.#map, [batch], { transactionalId: null, repeatable: true }, deadline);
    const result = results[0] as Produced;
    if (result.status === "written") {
      this.#advance(batch);
      return committed([batch], results);
    }
    const cause = result.error;
    if (result.doubtful) {
      // Also when the refusal is a fence: the attempt without an answer may have come before the rival's record.
      if (FencedError.is(cause)) this.#fenced = cause;
      this.#note(true, { batch });
      return { status: "unknown", cause };
    }
    if (FencedError.is(cause)) return { status: "fenced", cause };
    if (result.status === "refused" && meaningOf(result.code) === "refused-transaction") this.#note(true, undefined);
    if (KrabkaError.is(cause) && (cause.code === "UNKNOWN_TOPIC" || cause.code === "UNAUTHORIZED" || cause.code === "UNSUPPORTED")) {
      throw cause;
    }
    return { status: "aborted", cause };
  }

  async #settle(deadline: Deadline): Promise<WriteOutcome | undefined> {
    const unsettled = this.#unsettled;
    if (unsettled === undefined) return undefined;
    if (unsettled === "abort") {
      const { clean, fenced } = await abortTransaction(this.#authority(), deadline);
      if (fenced !== undefined) this.#die(fenced);
      if (clean) this.#unsettled = undefined;
      return undefined;
    }
    if (unsettled === "commit") {
      const { outcome } = await commitTransaction(this.#authority(), deadline, true);
      if (FencedError.is(outcome.status === "unknown" ? outcome.cause : undefined)) this.#die(new Error("fenced"));
      if (outcome.status !== "committed") return outcome.status === "unknown" ? undefined : outcome;
      this.#unsettled = undefined;
      const { batches = [], produced = [] } = this.#uncommitted ?? {};
      return committed(batches, produced);
    }
    this.#mustRemint = false;
    const outcome = await this.#append(unsettled.batch, deadline);
    this.#mustRemint = true;
    if (outcome.status === "committed" || outcome.status === "aborted") this.#unsettled = undefined;
    if (outcome.status === "fenced") this.#die(outcome.cause);
    return outcome.status === "unknown" ? undefined : outcome;
  }

  #die(cause: Error): never {
    this.#fenced = cause;
    throw new FencedError(`Role ${JSON.stringify(this.role)}: the pair is dead`, { role: this.role, cause });
  }

  #note(mustRemint: boolean, unsettled: Unsettled | UnsettledAppend | undefined): void {
    if (mustRemint) this.#mustRemint = true;
    this.#unsettled = unsettled;
  }

  #advance({ topic, partition, indices }: PlannedBatch): void {
    const key = keyOf({ topic, partition });
    this.#sequences.set(key, advanced(this.#sequences.get(key) ?? 0, indices.length));
  }

  async #partitionOf({ topic, partition, key }: OutgoingRecord, deadline: Deadline): Promise<number> {
    const { partitions } = await this.#map.topic(topic, deadline);
    const count = partitions.length;
    if (partition === undefined) {
      return key === null ? Math.floor(Math.random() * count) : partitionForKey(key, count);
    }
    if (Number.isInteger(partition) && partition >= 0 && partition < count) return partition;
    throw new KrabkaError(
      "INVALID_ARGUMENT",
      `Topic ${JSON.stringify(topic)} has ${count} partitions; partition ${partition} was given`,
    );
  }
}

const unknownSince = (unsettled: Unsettled | UnsettledAppend): WriteOutcome | undefined =>
  unsettled === "abort"
    ? undefined
    : { status: "unknown", cause: new Error("The new epoch ended the write before its outcome was learned") };

/** Positions in the order of the caller's records. */
const committed = (batches: readonly PlannedBatch[], produced: readonly Produced[]): WriteOutcome => {
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
