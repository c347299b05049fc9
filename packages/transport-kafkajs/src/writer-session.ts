import {
  type CallOptions,
  CallQueue,
  type Deadline,
  FencedError,
  KrabkaError,
  MAX_EPOCH,
  type OutgoingRecord,
  type ProducerPair,
  type RawRecord,
  type Role,
  type TopicPartition,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import { isOfAllAppends, isOfAllRetirements } from "./append-refusal.js";
import type { ClusterMap } from "./cluster-map.js";
import { meaningOf } from "./error-codes.js";
import { mintAgain } from "./mint.js";
import { placeRecords } from "./placement.js";
import { produceAppend } from "./produce.js";
import {
  type Authority,
  abortTransaction,
  runTransaction,
  TransactionRefused,
  type TransactionReport,
} from "./transaction.js";
import { settle, type Unsettled } from "./unsettled.js";
import type { TimedRecord } from "./wire/record-batch.js";
import { committedAt, type PlannedBatch, planBatch, planRounds, Sequences } from "./write-plan.js";

export interface SessionContext {
  readonly map: ClusterMap;
  readonly role: Role;
  readonly transactionTimeoutMs: number;
  /** Why fenced appends can't be used, or undefined. */
  readonly fencedAppendRefusal: () => string | undefined;
  /** The broker refused an append in a way that says that it takes none. */
  readonly onAppendUnsupported: (error: Error) => void;
  readonly onClose: () => void;
}

/** How long the farewell may take: it only spares the successor the wait for an open transaction. */
const CLOSE_TIMEOUT_MS = 1000;
/** Share of a re-mint's time that settling the unknown write may take. */
const SETTLING_SHARE = 0.5;
/** Codes that end a call before anything was written, and that a caller may want to know as an outcome. */
const ENDED_EARLY: readonly string[] = ["TIMEOUT", "ABORTED", "UNREACHABLE"];
const CALLERS_TO_KNOW: readonly string[] = ["UNKNOWN_TOPIC", "UNAUTHORIZED", "UNSUPPORTED"];

/** A writer under one pair. Calls run one at a time, in their order. */
export class KafkaJsWriterSession implements WriterSession {
  readonly role: Role;
  readonly #context: SessionContext;
  readonly #map: ClusterMap;
  readonly #queue = new CallQueue();
  #pair: ProducerPair;
  #sequences = new Sequences();
  /** An append was accepted, so a later refusal is not one of appends as such. */
  #appended = false;
  /** The pair began a transaction, whose marker may be on its way to a partition when an append arrives there. */
  #transacted = false;
  #mustRemint = false;
  #unsettled: Unsettled | undefined;
  #fenced: Error | undefined;
  #closing: Promise<void> | undefined;

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
    return this.#write(options, (deadline) => this.#commit(records, deadline));
  }

  append(target: TopicPartition, records: readonly RawRecord[], options?: CallOptions): Promise<WriteOutcome> {
    return this.#write(options, async (deadline) => {
      this.#requireFencedAppend();
      if (records.length === 0) return { status: "committed", positions: [] };
      const batch = planBatch(target, this.#timed(records), this.#pair, this.#sequences.next(target));
      return this.#append(batch, deadline);
    });
  }

  retire(producerId: bigint, target: TopicPartition, record: RawRecord, options?: CallOptions): Promise<WriteOutcome> {
    return this.#write(options, async (deadline) => {
      this.#requireFencedAppend();
      if (producerId === this.#pair.producerId) {
        throw new KrabkaError("INVALID_ARGUMENT", `The session's own producer id can't be retired; got ${producerId}`);
      }
      // Always sequence 0: a repetition is the same batch to the broker, which answers with the first one's offset.
      const batch = planBatch(target, this.#timed([record]), { producerId, epoch: MAX_EPOCH }, 0);
      const result = await produceAppend(this.#map, batch, this.#transacted, deadline);
      if (result.status === "written") return committedAt([batch], [result]);
      // No epoch is higher, so a refused one is shut out already.
      if (FencedError.is(result.error)) return { status: "committed", positions: [] };
      if (isOfAllRetirements(result)) this.#refuseAppends(result.error);
      return { status: result.doubtful ? "unknown" : "aborted", cause: result.error };
    });
  }

  remint(options?: CallOptions): Promise<WriteOutcome | undefined> {
    return this.#inTurn<WriteOutcome | undefined>(
      options,
      (why) => Promise.reject(why),
      async (deadline) => {
        if (this.#fenced !== undefined) this.#die(this.#fenced);
        const settled = await this.#settle(deadline.within(deadline.remainingMs * SETTLING_SHARE));
        try {
          this.#pair = await mintAgain(this.#map, this.role, this.#context.transactionTimeoutMs, this.#pair, deadline);
        } catch (error) {
          if (FencedError.is(error)) this.#fenced = error;
          throw error;
        }
        this.#sequences = new Sequences();
        this.#transacted = false;
        this.#unsettled = undefined;
        this.#mustRemint = false;
        return settled;
      },
    );
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    try {
      const farewell = this.#map.deadline({ timeoutMs: CLOSE_TIMEOUT_MS });
      await farewell.race(this.#queue.idle);
      if (this.#unsettled?.kind === "abort" && this.#fenced === undefined) {
        await abortTransaction(this.#authority, farewell);
      }
    } catch {
      // What is left open, the broker aborts at the transaction's timeout or at the next mint.
    } finally {
      this.#context.onClose();
    }
  }

  get #authority(): Authority {
    return { map: this.#map, role: this.role, pair: this.#pair };
  }

  #timed(records: readonly RawRecord[]): TimedRecord[] {
    const timestampMs = this.#map.clock.wallMs();
    return records.map((record) => ({ ...record, timestampMs }));
  }

  #requireFencedAppend(): void {
    const refusal = this.#context.fencedAppendRefusal();
    if (refusal !== undefined) throw new KrabkaError("UNSUPPORTED", `Fenced append: ${refusal}`, { role: this.role });
  }

  #write(
    options: CallOptions | undefined,
    write: (deadline: Deadline) => Promise<WriteOutcome>,
  ): Promise<WriteOutcome> {
    return this.#inTurn<WriteOutcome>(
      options,
      (cause) => ({ status: "aborted", cause }),
      async (deadline) => {
        if (this.#fenced !== undefined) return { status: "fenced", cause: this.#fenced };
        if (this.#mustRemint) {
          throw new KrabkaError("UNKNOWN_OUTCOME", "An earlier write lost an answer; the session must re-mint first", {
            role: this.role,
          });
        }
        const outcome = await write(deadline);
        if (outcome.status === "fenced") this.#fenced = outcome.cause;
        return outcome;
      },
    );
  }

  async #inTurn<T>(
    options: CallOptions | undefined,
    onLeft: (why: Error) => T | Promise<T>,
    work: (deadline: Deadline) => Promise<T>,
  ): Promise<T> {
    this.#refuseClosed();
    const deadline = this.#map.deadline(options);
    return this.#queue.run(deadline, onLeft, () => {
      this.#refuseClosed();
      return work(deadline);
    });
  }

  #refuseClosed(): void {
    if (this.#closing !== undefined) throw new KrabkaError("CLOSED", "The session was closed", { role: this.role });
  }

  async #commit(records: readonly OutgoingRecord[], deadline: Deadline): Promise<WriteOutcome> {
    if (records.length === 0) return { status: "committed", positions: [] };
    let report: TransactionReport;
    let rounds: ReturnType<typeof planRounds>;
    try {
      rounds = planRounds(await placeRecords(this.#map, records, deadline), this.#pair, this.#sequences);
      this.#transacted = true;
      report = await runTransaction(this.#authority, rounds, deadline);
    } catch (error) {
      if (error instanceof TransactionRefused) {
        if (error.mustRemint) this.#note({ kind: "abort", outcome: undefined });
        throw error.reason;
      }
      if (KrabkaError.is(error) && ENDED_EARLY.includes(error.code)) return { status: "aborted", cause: error };
      throw error;
    }
    return this.#take(rounds.flat(), report);
  }

  #take(
    batches: readonly PlannedBatch[],
    { outcome, produced, mustRemint, unsettled }: TransactionReport,
  ): WriteOutcome {
    produced.forEach((result, index) => {
      const batch = batches[index];
      if (result.status === "written" && batch !== undefined) this.#sequences.advance(batch, batch.indices.length);
    });
    if (mustRemint) this.#mustRemint = true;
    if (unsettled === "commit") this.#note({ kind: "commit", batches, produced });
    if (unsettled === "abort") {
      const settled: WriteOutcome | undefined =
        outcome.status === "unknown" ? { status: "aborted", cause: outcome.cause } : undefined;
      this.#note({ kind: "abort", outcome: settled });
    }
    // Refused as fenced after a commit that may have been executed: nothing can settle it any more.
    if (outcome.status === "unknown" && FencedError.is(outcome.cause)) this.#fenced = outcome.cause;
    return outcome.status === "committed" ? committedAt(batches, produced) : outcome;
  }

  async #append(batch: PlannedBatch, deadline: Deadline): Promise<WriteOutcome> {
    const result = await produceAppend(this.#map, batch, this.#transacted, deadline);
    if (result.status === "written") {
      this.#appended = true;
      // A late repetition is harmless: the partition knows the sequence number.
      this.#sequences.advance(batch, batch.indices.length);
      return committedAt([batch], [result]);
    }
    const cause = result.error;
    if (await isOfAllAppends(result, this.#authority, !this.#appended, deadline)) this.#refuseAppends(cause);
    if (result.doubtful) {
      // Also when the refusal is a fence: the attempt without an answer may have come before the rival's record.
      if (FencedError.is(cause)) this.#fenced = cause;
      this.#note({ kind: "append", batch });
      return { status: "unknown", cause };
    }
    if (FencedError.is(cause)) return { status: "fenced", cause };
    if (result.status === "refused" && meaningOf(result.code) === "refused-transaction") this.#mustRemint = true;
    if (KrabkaError.is(cause) && CALLERS_TO_KNOW.includes(cause.code)) throw cause;
    return { status: "aborted", cause };
  }

  #refuseAppends(cause: Error): never {
    const message = `Role ${JSON.stringify(this.role)}: no fenced append; ${cause.message}`;
    const error = new KrabkaError("UNSUPPORTED", message, { role: this.role, cause });
    this.#context.onAppendUnsupported(error);
    throw error;
  }

  /** What became of the unsettled write, undefined if there was none that was unknown. @throws {FencedError} */
  async #settle(deadline: Deadline): Promise<WriteOutcome | undefined> {
    if (this.#unsettled === undefined) return undefined;
    const settled = await settle(this.#unsettled, this.#authority, this.#transacted, deadline);
    if (settled.dead !== undefined) this.#die(settled.dead);
    return settled.outcome;
  }

  #note(unsettled: Unsettled): void {
    this.#mustRemint = true;
    this.#unsettled = unsettled;
  }

  #die(cause: Error): never {
    this.#fenced = cause;
    throw new FencedError(`Role ${JSON.stringify(this.role)}: the pair is dead`, { role: this.role, cause });
  }
}
