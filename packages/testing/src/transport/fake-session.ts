import {
  type CallOptions,
  FencedError,
  KrabkaError,
  MAX_EPOCH,
  type OutgoingRecord,
  type ProducerPair,
  type RawRecord,
  type RecordPosition,
  type Role,
  type TopicPartition,
  type TransportCapabilities,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import { type Ask, KafkaCode } from "../cluster/protocol.js";
import type { CallLimit } from "./call-limit.js";
import { type FakeConnection, FENCE_CODES, refusalError } from "./fake-connection.js";
import { Turns } from "./turns.js";
import { type PlannedBatch, partitionKey, planBatches, positionOf } from "./write-plan.js";

const NO_WAIT: readonly number[] = [];
const BUSY: readonly number[] = [KafkaCode.CONCURRENT_TRANSACTIONS];

/** A write of which the end is not known. */
type Unsettled =
  | { readonly kind: "transaction"; readonly commitSent: boolean; readonly positions: readonly RecordPosition[] }
  | { readonly kind: "append"; readonly ask: Ask<"Produce"> }
  | { readonly kind: "settled"; readonly outcome: WriteOutcome | undefined };

type State =
  | { readonly kind: "ready" }
  | { readonly kind: "must-remint"; readonly write: Unsettled }
  | { readonly kind: "fenced"; readonly cause: FencedError }
  | { readonly kind: "closed" };

/** One transaction on its way: what was sent so far decides what its failure means. */
interface Progress {
  sent: boolean;
  commitSent: boolean;
  lost: boolean;
  readonly positions: RecordPosition[];
}

export interface SessionParts {
  readonly connection: FakeConnection;
  readonly capabilities: TransportCapabilities;
  readonly role: Role;
  readonly pair: ProducerPair;
  readonly transactionTimeoutMs: number;
}

/** A session whose every step is a request to the fake brokers, in the order in which a Kafka client sends them. */
export class FakeSession implements WriterSession {
  readonly role: Role;
  readonly #connection: FakeConnection;
  readonly #capabilities: TransportCapabilities;
  readonly #transactionTimeoutMs: number;
  readonly #sequences = new Map<string, number>();
  readonly #turns: Turns;
  #pair: ProducerPair;
  #state: State = { kind: "ready" };
  #keyless = 0;
  /** Whether a write ended without an end of its transaction. */
  #leftOpen = false;

  constructor(parts: SessionParts) {
    this.role = parts.role;
    this.#connection = parts.connection;
    this.#turns = new Turns(parts.connection);
    this.#capabilities = parts.capabilities;
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
      const timestampMs = this.#connection.clock.wallMs();
      return await this.#append(
        {
          ...target,
          transactionalId: undefined,
          batch: {
            ...this.#pair,
            records: records.map((record) => ({ ...record, timestampMs })),
            baseSequence: this.#sequences.get(partitionKey(target)) ?? 0,
            transactional: false,
          },
        },
        limit,
      );
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
    return await this.#write(options, async (limit) => {
      const records = [{ ...record, timestampMs: this.#connection.clock.wallMs() }];
      const batch = { records, producerId, epoch: MAX_EPOCH, baseSequence: 0, transactional: false };
      return await this.#append({ ...target, transactionalId: undefined, batch }, limit);
    });
  }

  async remint(options?: CallOptions): Promise<WriteOutcome | undefined> {
    this.#require("conditionalRemint");
    return await this.#turns.take(options, async (limit) => {
      limit.check();
      if (this.#state.kind === "fenced") throw this.#state.cause;
      if (this.#state.kind === "closed") throw closedError();
      const settled = await this.#settle(limit);
      await this.#bump(limit);
      return settled;
    });
  }

  async close(): Promise<void> {
    const before = this.#state;
    if (before.kind === "closed") return;
    this.#state = { kind: "closed" };
    const open = before.kind === "must-remint" && before.write.kind === "transaction";
    await this.#turns
      .take(undefined, async (limit) => {
        if (open || this.#leftOpen) await this.#endTxn(limit, false);
      })
      .catch(() => {});
  }

  #require(capability: keyof TransportCapabilities): void {
    const declared = this.#capabilities[capability];
    if (!declared.supported) throw new KrabkaError("UNSUPPORTED", declared.reason, { role: this.role });
  }

  async #write(
    options: CallOptions | undefined,
    work: (limit: CallLimit) => Promise<WriteOutcome>,
  ): Promise<WriteOutcome> {
    if (this.#state.kind === "closed") throw closedError();
    return await this.#turns.take(options, async (limit) => {
      const { fault } = limit;
      if (fault !== undefined) {
        if (fault.code === "CLOSED") throw fault;
        return { status: "aborted", cause: fault };
      }
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
    const progress: Progress = { sent: false, commitSent: false, lost: false, positions: [] };
    try {
      const batches = await this.#plan(records, limit);
      const outcome = await this.#transact(batches, progress, limit);
      if (progress.lost && outcome.status !== "fenced") this.#mustRemint({ kind: "settled", outcome });
      return outcome;
    } catch (error) {
      const { fault } = limit;
      if (fault === undefined || error !== fault) throw error;
      if (!progress.sent && fault.code === "CLOSED") throw error;
      if (!progress.sent) return { status: "aborted", cause: fault };
      this.#leftOpen = true;
      this.#mustRemint({ kind: "transaction", commitSent: progress.commitSent, positions: progress.positions });
      return { status: "unknown", cause: fault };
    }
  }

  async #transact(batches: readonly PlannedBatch[], progress: Progress, limit: CallLimit): Promise<WriteOutcome> {
    const onLost = () => {
      progress.lost = true;
    };
    const coordinator = this.#connection.toCoordinator(this.role);
    const identity = { transactionalId: this.role, ...this.#pair };
    await coordinator.broker(limit);
    progress.sent = true;
    const partitions = [...new Map(batches.map(({ target }) => [partitionKey(target), target])).values()];
    const added = await this.#connection.repeat(
      limit,
      "AddPartitionsToTxn",
      { ...identity, partitions },
      coordinator,
      BUSY,
      onLost,
    );
    if (!added.answer.ok) return await this.#giveUp("AddPartitionsToTxn", added.answer.code, limit);
    for (const { target, records, indexes } of batches) {
      const ask: Ask<"Produce"> = {
        ...target,
        transactionalId: this.role,
        batch: {
          ...this.#pair,
          records,
          baseSequence: this.#sequences.get(partitionKey(target)) ?? 0,
          transactional: true,
        },
      };
      const route = this.#connection.toLeader(target);
      const { answer } = await this.#connection.repeat(limit, "Produce", ask, route, NO_WAIT, onLost);
      if (!answer.ok) return await this.#giveUp("Produce", answer.code, limit);
      this.#acknowledge(ask);
      indexes.forEach((index, i) => {
        progress.positions[index] = positionOf(target, answer.baseOffset + BigInt(i), answer.appendedAtMs);
      });
    }
    progress.commitSent = true;
    const { answer, lost } = await this.#connection.repeat(
      limit,
      "EndTxn",
      { ...identity, commit: true },
      coordinator,
      BUSY,
      onLost,
    );
    return this.#committed(answer, lost, progress.positions);
  }

  /** What the answer to EndTxn(commit) says, perhaps to a repeated one. */
  #committed(
    answer: { readonly ok: true } | { readonly ok: false; readonly code: number },
    lost: boolean,
    positions: readonly RecordPosition[],
  ): WriteOutcome {
    if (answer.ok) return { status: "committed", positions };
    if (FENCE_CODES.has(answer.code)) {
      const cause = this.#fenced("EndTxn", answer.code);
      // The lost request may have committed before the pair died.
      return lost ? { status: "unknown", cause } : { status: "fenced", cause };
    }
    const cause = refusalError("EndTxn", answer.code);
    // Under an unchanged epoch a contrary end can only be this session's own abort.
    if (answer.code === KafkaCode.INVALID_TXN_STATE) return { status: "aborted", cause };
    this.#mustRemint({ kind: "transaction", commitSent: true, positions });
    return { status: "unknown", cause };
  }

  /** Ends a transaction that the broker refused before its commit was asked for. */
  async #giveUp(what: string, code: number, limit: CallLimit): Promise<WriteOutcome> {
    if (FENCE_CODES.has(code)) return { status: "fenced", cause: this.#fenced(what, code) };
    const cause = refusalError(what, code);
    const answer = await this.#endTxn(limit, false);
    if (answer.ok || answer.code === KafkaCode.INVALID_TXN_STATE) {
      if (what === "AddPartitionsToTxn" && (cause.code === "UNKNOWN_TOPIC" || cause.code === "UNAUTHORIZED"))
        throw cause;
      return { status: "aborted", cause };
    }
    if (FENCE_CODES.has(answer.code)) return { status: "fenced", cause: this.#fenced("EndTxn", answer.code) };
    this.#mustRemint({ kind: "transaction", commitSent: false, positions: [] });
    return { status: "unknown", cause };
  }

  async #endTxn(limit: CallLimit, commit: boolean) {
    const { answer } = await this.#connection.repeat(
      limit,
      "EndTxn",
      { transactionalId: this.role, ...this.#pair, commit },
      this.#connection.toCoordinator(this.role),
      BUSY,
    );
    return answer;
  }

  async #append(ask: Ask<"Produce">, limit: CallLimit): Promise<WriteOutcome> {
    let sent = false;
    const { topic, partition } = ask;
    const own = ask.batch.producerId === this.#pair.producerId;
    try {
      const route = this.#connection.toLeader(ask);
      await route.broker(limit);
      sent = true;
      // The marker of this session's last transaction may still be on its way to the partition.
      const { answer } = await this.#connection.repeat(limit, "Produce", ask, route, [KafkaCode.INVALID_TXN_STATE]);
      if (!answer.ok) {
        if (!FENCE_CODES.has(answer.code)) return { status: "aborted", cause: refusalError("Produce", answer.code) };
        return { status: "fenced", cause: own ? this.#fenced("Produce", answer.code) : fence("Produce", answer.code) };
      }
      if (own) this.#acknowledge(ask);
      const positions = ask.batch.records.map((_, index) =>
        positionOf({ topic, partition }, answer.baseOffset + BigInt(index), answer.appendedAtMs),
      );
      return { status: "committed", positions };
    } catch (error) {
      const { fault } = limit;
      if (fault === undefined || error !== fault) throw error;
      if (!sent && fault.code === "CLOSED") throw error;
      if (!sent) return { status: "aborted", cause: fault };
      this.#mustRemint({ kind: "append", ask });
      return { status: "unknown", cause: fault };
    }
  }

  /** Learns what became of the unsettled write, and proves on the way that the pair is still the newest. */
  async #settle(limit: CallLimit): Promise<WriteOutcome | undefined> {
    const write: Unsettled =
      this.#state.kind === "must-remint" ? this.#state.write : { kind: "settled", outcome: undefined };
    let outcome: WriteOutcome | undefined;
    if (write.kind === "append") {
      outcome = await this.#append(write.ask, limit);
      if (outcome.status === "fenced") throw outcome.cause;
      if (limit.fault !== undefined) throw limit.fault;
    }
    // Kafka compares the pair of a conditional InitProducerId only while no transaction is open (4.1): else it aborts a
    // rival's transaction. EndTxn compares it always, so it goes first and is what finds a rival.
    const commit = write.kind === "transaction" && write.commitSent;
    const answer = await this.#endTxn(limit, commit);
    if (!answer.ok && answer.code !== KafkaCode.INVALID_TXN_STATE) {
      if (FENCE_CODES.has(answer.code)) throw this.#fenced("EndTxn", answer.code);
      throw refusalError("EndTxn", answer.code);
    }
    if (write.kind === "transaction") {
      outcome =
        commit && answer.ok
          ? { status: "committed", positions: write.positions }
          : { status: "aborted", cause: new KrabkaError("NOT_COMMITTED", "The transaction was aborted") };
    }
    if (write.kind === "settled") return undefined;
    this.#mustRemint({ kind: "settled", outcome });
    return outcome;
  }

  async #bump(limit: CallLimit): Promise<void> {
    const { answer } = await this.#connection.repeat(
      limit,
      "InitProducerId",
      { transactionalId: this.role, transactionTimeoutMs: this.#transactionTimeoutMs, expected: this.#pair },
      this.#connection.toCoordinator(this.role),
      BUSY,
    );
    if (!answer.ok) {
      if (FENCE_CODES.has(answer.code)) throw this.#fenced("InitProducerId", answer.code);
      throw refusalError("InitProducerId", answer.code);
    }
    this.#pair = { producerId: answer.producerId, epoch: answer.epoch };
    this.#sequences.clear();
    if (this.#state.kind !== "closed") this.#state = { kind: "ready" };
  }

  #mustRemint(write: Unsettled): void {
    if (this.#state.kind === "ready" || this.#state.kind === "must-remint")
      this.#state = { kind: "must-remint", write };
  }

  #fenced(what: string, code: number): FencedError {
    const cause = fence(what, code, this.role);
    if (this.#state.kind !== "closed") this.#state = { kind: "fenced", cause };
    return cause;
  }

  #acknowledge(ask: Ask<"Produce">): void {
    this.#sequences.set(partitionKey(ask), ask.batch.baseSequence + ask.batch.records.length);
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

const fence = (what: string, code: number, role?: Role): FencedError =>
  new FencedError(`The broker refused ${what}: the pair is dead (code ${code})`, { role });
