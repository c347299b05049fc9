import {
  type CallOptions,
  FencedError,
  KrabkaError,
  MAX_EPOCH,
  type OutgoingRecord,
  type ProducerPair,
  type RawRecord,
  type Role,
  type TopicPartition,
  type TransportCapabilities,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import { type Ask, KafkaCode } from "../cluster/protocol.js";
import { isOfAllAppends } from "./append-refusal.js";
import type { CallLimit } from "./call-limit.js";
import { type FakeConnection, FENCE_CODES, fencedError, refusalError } from "./fake-connection.js";
import { FakeTransaction, type Verdict } from "./fake-transaction.js";
import { mintAgain } from "./mint.js";
import { Sequences } from "./sequences.js";
import { Turns } from "./turns.js";
import { type PlannedBatch, planBatches, positionOf } from "./write-plan.js";

/** What a re-mint has to settle first, and then to report. */
type Unsettled =
  /** `told`: its outcome is known, and was not `unknown`. */
  | { readonly kind: "transaction"; readonly transaction: FakeTransaction; readonly told: boolean }
  | { readonly kind: "append"; readonly ask: Ask<"Produce"> }
  | { readonly kind: "settled"; readonly report: WriteOutcome | undefined };

type State =
  | { readonly kind: "ready" }
  | { readonly kind: "must-remint"; readonly write: Unsettled }
  | { readonly kind: "fenced"; readonly cause: FencedError }
  | { readonly kind: "closed" };

const NOTHING: Unsettled = { kind: "settled", report: undefined };
const MARKER_UNDER_WAY: readonly number[] = [KafkaCode.INVALID_TXN_STATE];
export interface SessionParts {
  readonly connection: FakeConnection;
  readonly capabilities: () => TransportCapabilities;
  /** The broker refused an append in a way that says that it takes none. */
  readonly onAppendUnsupported: (error: KrabkaError) => void;
  readonly role: Role;
  readonly pair: ProducerPair;
  readonly transactionTimeoutMs: number;
}

/** A session whose every step is a request to the fake brokers. */
export class FakeSession implements WriterSession {
  readonly role: Role;
  readonly #connection: FakeConnection;
  readonly #parts: SessionParts;
  readonly #transactionTimeoutMs: number;
  readonly #turns: Turns;
  #pair: ProducerPair;
  #sequences = new Sequences();
  #state: State = { kind: "ready" };
  /** A transaction that was given up without its end being known. */
  #leftOpen: FakeTransaction | undefined;
  #keyless = 0;
  /** An append was accepted, so a later refusal is not one of appends as such. */
  #appended = false;
  /** The pair began a transaction, whose marker may be on its way to a partition. */
  #transacted = false;

  constructor(parts: SessionParts) {
    this.role = parts.role;
    this.#connection = parts.connection;
    this.#turns = new Turns(parts.connection);
    this.#parts = parts;
    this.#pair = parts.pair;
    this.#transactionTimeoutMs = parts.transactionTimeoutMs;
  }

  get pair(): ProducerPair {
    return this.#pair;
  }

  get mustRemint(): boolean {
    return this.#state.kind === "must-remint";
  }

  async commit(records: readonly OutgoingRecord[], options?: CallOptions): Promise<WriteOutcome> {
    return await this.#write(options, (limit) => this.#commit(records, limit));
  }

  async append(target: TopicPartition, records: readonly RawRecord[], options?: CallOptions): Promise<WriteOutcome> {
    this.#require("fencedAppend");
    return await this.#write(options, async (limit) => {
      if (records.length === 0) return { status: "committed", positions: [] };
      return await this.#append(this.#produceOf(target, records, this.#pair, this.#sequences.next(target)), limit);
    });
  }

  async retire(
    producerId: bigint,
    target: TopicPartition,
    record: RawRecord,
    options?: CallOptions,
  ): Promise<WriteOutcome> {
    this.#require("fencedAppend");
    if (producerId === this.#pair.producerId) {
      throw new KrabkaError("INVALID_ARGUMENT", `producerId must be one that the role has left; got ${producerId}`);
    }
    const ask = this.#produceOf(target, [record], { producerId, epoch: MAX_EPOCH }, 0);
    return await this.#write(options, (limit) => this.#append(ask, limit));
  }

  async remint(options?: CallOptions): Promise<WriteOutcome | undefined> {
    this.#require("conditionalRemint");
    return await this.#turns.take(options, async (limit) => {
      limit.check();
      if (this.#state.kind === "fenced") throw this.#state.cause;
      if (this.#state.kind === "closed") throw closedError();
      const report = await this.#settle(this.#state.kind === "must-remint" ? this.#state.write : NOTHING, limit);
      await this.#bump(limit);
      return report;
    });
  }

  async close(): Promise<void> {
    if (this.#state.kind === "closed") return;
    this.#state = { kind: "closed" };
    await this.#turns.take(undefined, async (limit) => await this.#leftOpen?.abort(limit)).catch(() => {});
  }

  #require(capability: keyof TransportCapabilities): void {
    const declared = this.#parts.capabilities()[capability];
    if (!declared.supported) throw new KrabkaError("UNSUPPORTED", declared.reason, { role: this.role });
  }

  async #write(
    options: CallOptions | undefined,
    work: (limit: CallLimit) => Promise<WriteOutcome>,
  ): Promise<WriteOutcome> {
    if (this.#state.kind === "closed") throw closedError();
    return await this.#turns.take(options, async (limit) => {
      if (limit.fault !== undefined) return unsent(limit.fault);
      switch (this.#state.kind) {
        case "closed":
          throw closedError();
        case "fenced":
          return { status: "fenced", cause: this.#state.cause };
        case "must-remint":
          throw new KrabkaError("UNKNOWN_OUTCOME", "An answer of an earlier write was lost; call remint first", {
            role: this.role,
          });
        case "ready":
          return await work(limit);
      }
    });
  }

  async #commit(records: readonly OutgoingRecord[], limit: CallLimit): Promise<WriteOutcome> {
    if (records.length === 0) return { status: "committed", positions: [] };
    const transaction = new FakeTransaction(this.#connection, this.role, this.#pair);
    try {
      const batches = await this.#plan(records, limit);
      this.#transacted = true;
      const verdict = await transaction.run(batches, this.#sequences, limit);
      if (verdict.leftOpen === true) this.#leaveOpen(transaction, true);
      else if (verdict.dead === undefined && verdict.outcome.status === "unknown") this.#leaveOpen(transaction, false);
      else if (transaction.lost) this.#mustRemint(NOTHING);
      return this.#heed(verdict);
    } catch (error) {
      const ended = endOf(error, limit);
      if (!transaction.sent) return unsent(ended);
      this.#leaveOpen(transaction, false);
      return { status: "unknown", cause: ended };
    }
  }

  async #append(ask: Ask<"Produce">, limit: CallLimit): Promise<WriteOutcome> {
    const route = this.#connection.toLeader(ask);
    let sent = false;
    try {
      await route.broker(limit);
      sent = true;
      // The marker of this session's last transaction may still be on its way to the partition.
      const busy = this.#transacted ? MARKER_UNDER_WAY : [];
      const { answer, lost } = await this.#connection.repeat(limit, "Produce", ask, route, busy);
      if (answer.ok) {
        this.#appended = true;
        const { records, producerId } = ask.batch;
        if (producerId === this.#pair.producerId) this.#sequences.used(ask, records.length);
        const positions = records.map((_, index) =>
          positionOf(ask, answer.baseOffset + BigInt(index), answer.appendedAtMs),
        );
        return { status: "committed", positions };
      }
      if (!lost && (await this.#takesNone(answer.code, limit))) throw this.#refuseAppends(answer.code);
      return this.#refused(ask, answer.code, lost);
    } catch (error) {
      const ended = endOf(error, limit);
      if (!sent) return unsent(ended);
      this.#mustRemint({ kind: "append", ask });
      return { status: "unknown", cause: ended };
    }
  }

  #takesNone(code: number, limit: CallLimit): Promise<boolean> {
    return isOfAllAppends(code, this.#connection, this.role, this.#pair, !this.#appended, limit);
  }

  #refuseAppends(code: number): KrabkaError {
    const error = new KrabkaError("UNSUPPORTED", `The broker takes no fenced append (code ${code})`, {
      role: this.role,
    });
    this.#parts.onAppendUnsupported(error);
    return error;
  }

  /** What a refused append means. A partition does not recognise a repeated batch once it knows a newer epoch. */
  #refused(ask: Ask<"Produce">, code: number, lost: boolean): WriteOutcome {
    if (FENCE_CODES.has(code)) {
      const cause = fencedError("Produce", code, this.role);
      if (ask.batch.producerId === this.#pair.producerId) this.#die(cause);
      return { status: lost ? "unknown" : "fenced", cause };
    }
    const cause = refusalError("Produce", code);
    if (!lost) return { status: "aborted", cause };
    this.#mustRemint(NOTHING);
    return { status: "unknown", cause };
  }

  /** Learns what became of the unsettled write, and proves on the way that the pair is still the newest. */
  async #settle(write: Unsettled, limit: CallLimit): Promise<WriteOutcome | undefined> {
    if (write.kind === "transaction") {
      const verdict = await write.transaction.settle(limit);
      this.#leftOpen = undefined;
      if (verdict.dead !== undefined) throw this.#die(verdict.dead);
      const report = write.told ? undefined : verdict.outcome;
      this.#mustRemint({ kind: "settled", report });
      return report;
    }
    let report = write.kind === "settled" ? write.report : undefined;
    if (write.kind === "append") {
      report = await this.#append(write.ask, limit);
      limit.check();
      if (this.#state.kind === "fenced") throw this.#state.cause;
      this.#mustRemint({ kind: "settled", report });
    }
    // Kafka compares the pair of a conditional InitProducerId only while no transaction is open (4.1): else it aborts a
    // rival's transaction. EndTxn compares it always, so it goes first and is what finds a rival.
    const answer = await new FakeTransaction(this.#connection, this.role, this.#pair).abort(limit);
    if (!answer.ok && FENCE_CODES.has(answer.code)) throw this.#die(fencedError("EndTxn", answer.code, this.role));
    return report;
  }

  async #bump(limit: CallLimit): Promise<void> {
    try {
      this.#pair = await mintAgain(this.#connection, this.role, this.#transactionTimeoutMs, this.#pair, limit);
    } catch (error) {
      throw FencedError.is(error) ? this.#die(error) : error;
    }
    this.#sequences = new Sequences();
    this.#transacted = false;
    if (this.#state.kind !== "closed") this.#state = { kind: "ready" };
  }

  #heed({ outcome, dead }: Verdict): WriteOutcome {
    if (dead !== undefined) this.#die(dead);
    return outcome;
  }

  #die(cause: FencedError): FencedError {
    if (this.#state.kind !== "closed") this.#state = { kind: "fenced", cause };
    return cause;
  }

  #leaveOpen(transaction: FakeTransaction, told: boolean): void {
    this.#leftOpen = transaction;
    this.#mustRemint({ kind: "transaction", transaction, told });
  }

  #mustRemint(write: Unsettled): void {
    const { kind } = this.#state;
    if (kind === "ready" || kind === "must-remint") this.#state = { kind: "must-remint", write };
  }

  #produceOf(
    { topic, partition }: TopicPartition,
    records: readonly RawRecord[],
    pair: ProducerPair,
    baseSequence: number,
  ): Ask<"Produce"> {
    const timestampMs = this.#connection.clock.wallMs();
    const stamped = records.map((record) => ({ ...record, timestampMs }));
    const batch = { ...pair, records: stamped, baseSequence, transactional: false };
    return { topic, partition, transactionalId: undefined, batch };
  }

  async #plan(records: readonly OutgoingRecord[], limit: CallLimit): Promise<readonly PlannedBatch[]> {
    const partitionsOf = new Map<string, number>();
    for (const { topic } of records) {
      if (!partitionsOf.has(topic)) partitionsOf.set(topic, (await this.#connection.leadersOf(limit, topic)).length);
    }
    const batches = planBatches(records, partitionsOf, this.#connection.clock.wallMs(), this.#keyless);
    this.#keyless += records.length;
    return batches;
  }
}

const closedError = (): KrabkaError => new KrabkaError("CLOSED", "The session was closed");

/** What ended a call before its last answer: its own limit, or that no way to a broker was found. @throws any other error */
const endOf = (error: unknown, { fault }: CallLimit): KrabkaError => {
  if (KrabkaError.is(error) && (error === fault || error.code === "UNREACHABLE")) return error;
  throw error;
};

/** The outcome of a call that had to end before anything was sent. @throws {KrabkaError} `CLOSED` */
const unsent = (fault: KrabkaError): WriteOutcome => {
  if (fault.code === "CLOSED") throw fault;
  return { status: "aborted", cause: fault };
};
