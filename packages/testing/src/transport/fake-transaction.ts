import {
  type FencedError,
  KrabkaError,
  type ProducerPair,
  type RecordPosition,
  type Role,
  type WriteOutcome,
} from "@krabka/core";
import { type Answer, KafkaCode } from "../cluster/protocol.js";
import type { CallLimit } from "./call-limit.js";
import { type FakeConnection, FENCE_CODES, fencedError, refusalError } from "./fake-connection.js";
import type { Sequences } from "./sequences.js";
import { type PlannedBatch, partitionKey, positionOf } from "./write-plan.js";

const BUSY: readonly number[] = [KafkaCode.CONCURRENT_TRANSACTIONS];

/** What a transaction ended with, and what that means for the pair. */
export interface Verdict {
  readonly outcome: WriteOutcome;
  /** Set where the broker refused the pair, or refuses to end its transaction. */
  readonly dead?: FencedError | undefined;
  /** The transaction is still open, since its abort was refused. */
  readonly leftOpen?: boolean | undefined;
}

/** One transaction under one pair: its requests in the order in which a Kafka client sends them. */
export class FakeTransaction {
  readonly #connection: FakeConnection;
  readonly #role: Role;
  readonly #pair: ProducerPair;
  readonly #positions: RecordPosition[] = [];
  #sent = false;
  #commitSent = false;
  #lost = false;

  constructor(connection: FakeConnection, role: Role, pair: ProducerPair) {
    this.#connection = connection;
    this.#role = role;
    this.#pair = pair;
  }

  /** Whether anything of it may have reached a broker. */
  get sent(): boolean {
    return this.#sent;
  }

  /** Whether an answer was lost, so that a late request of it may still be under way. */
  get lost(): boolean {
    return this.#lost;
  }

  /** @throws {KrabkaError} the limit's fault, after which `settle` finds out more; `UNKNOWN_TOPIC`, `UNAUTHORIZED` */
  async run(batches: readonly PlannedBatch[], sequences: Sequences, limit: CallLimit): Promise<Verdict> {
    const coordinator = this.#connection.toCoordinator(this.#role);
    await coordinator.broker(limit);
    this.#sent = true;
    const partitions = [...new Map(batches.map(({ target }) => [partitionKey(target), target])).values()];
    const add = { transactionalId: this.#role, ...this.#pair, partitions };
    const added = await this.#connection.repeat(limit, "AddPartitionsToTxn", add, coordinator, BUSY, this.#onLost);
    if (!added.answer.ok) {
      const verdict = await this.#giveUp("AddPartitionsToTxn", added.answer.code, limit);
      const { outcome } = verdict;
      if (outcome.status === "aborted" && isAboutTopics(outcome.cause)) throw outcome.cause;
      return verdict;
    }
    for (const batch of batches) {
      const code = await this.#produce(batch, sequences, limit);
      if (code !== undefined) return await this.#giveUp("Produce", code, limit);
    }
    this.#commitSent = true;
    const { answer, lost } = await this.#end(limit, true);
    return this.#committed(answer, lost);
  }

  /**
   * Finds out what became of a transaction that ran into its limit, and leaves it ended.
   *
   * @throws {KrabkaError} the limit's fault
   */
  async settle(limit: CallLimit): Promise<Verdict> {
    const { answer } = await this.#end(limit, this.#commitSent);
    if (this.#commitSent) return this.#committed(answer, true);
    // One that is refused again would be for ever; the next member's mint ends the transaction. With INVALID_TXN_STATE
    // nothing of it had reached the coordinator.
    const refusal = refusalOf(answer);
    if (refusal !== undefined) return this.#dead("EndTxn", refusal, false);
    return aborted(new KrabkaError("NOT_COMMITTED", "The transaction was aborted"));
  }

  /** Aborts it if it is open. The answer tells whether the pair is still the newest, also where nothing is open. */
  async abort(limit: CallLimit): Promise<Answer<"EndTxn">> {
    return (await this.#end(limit, false)).answer;
  }

  readonly #onLost = (): void => {
    this.#lost = true;
  };

  /** @returns the code of a refusal */
  async #produce(planned: PlannedBatch, sequences: Sequences, limit: CallLimit): Promise<number | undefined> {
    const { target, records, indexes } = planned;
    const batch = { ...this.#pair, records, baseSequence: sequences.next(target), transactional: true };
    const ask = { ...target, transactionalId: this.#role, batch };
    const route = this.#connection.toLeader(target);
    const { answer } = await this.#connection.repeat(limit, "Produce", ask, route, [], this.#onLost);
    if (!answer.ok) return answer.code;
    sequences.used(target, records.length);
    indexes.forEach((index, i) => {
      this.#positions[index] = positionOf(target, answer.baseOffset + BigInt(i), answer.appendedAtMs);
    });
    return undefined;
  }

  #end(limit: CallLimit, commit: boolean) {
    const ask = { transactionalId: this.#role, ...this.#pair, commit };
    const coordinator = this.#connection.toCoordinator(this.#role);
    return this.#connection.repeat(limit, "EndTxn", ask, coordinator, BUSY, this.#onLost);
  }

  /** What the answer to EndTxn(commit) says, perhaps after others that were lost. */
  #committed(answer: Answer<"EndTxn">, lost: boolean): Verdict {
    if (answer.ok) return { outcome: { status: "committed", positions: this.#positions } };
    if (FENCE_CODES.has(answer.code)) return this.#dead("EndTxn", answer.code, lost);
    const cause = refusalError("EndTxn", answer.code);
    // Under an unchanged epoch a contrary end can only be this session's own abort.
    return answer.code === KafkaCode.INVALID_TXN_STATE ? aborted(cause) : unknown(cause);
  }

  /** Ends a transaction that a broker refused before its commit was asked for. */
  async #giveUp(what: string, code: number, limit: CallLimit): Promise<Verdict> {
    if (FENCE_CODES.has(code)) return this.#dead(what, code, false);
    const cause = refusalError(what, code);
    const refusal = refusalOf(await this.abort(limit));
    if (refusal === undefined) return aborted(cause);
    if (FENCE_CODES.has(refusal)) return this.#dead("EndTxn", refusal, false);
    return { ...aborted(notAborted(cause, refusalError("EndTxn", refusal))), leftOpen: true };
  }

  /** @param mayBeCommitted a lost request may have committed before the pair died */
  #dead(what: string, code: number, mayBeCommitted: boolean): Verdict {
    const dead = fencedError(what, code, this.#role);
    return { outcome: { status: mayBeCommitted ? "unknown" : "fenced", cause: dead }, dead };
  }
}

/** Why nothing was aborted, unless nothing is open any more. */
const refusalOf = (answer: Answer<"EndTxn">): number | undefined =>
  answer.ok || answer.code === KafkaCode.INVALID_TXN_STATE ? undefined : answer.code;

/** What failed first is what a caller has to know; that the abort failed as well comes behind it. */
const notAborted = ({ code, message }: KrabkaError, refusal: KrabkaError): KrabkaError =>
  new KrabkaError(code, `${message}; the abort after it was refused`, { cause: refusal });

const aborted = (cause: Error): Verdict => ({ outcome: { status: "aborted", cause } });
const unknown = (cause: Error): Verdict => ({ outcome: { status: "unknown", cause } });

const isAboutTopics = (cause: Error): boolean =>
  KrabkaError.is(cause) && (cause.code === "UNKNOWN_TOPIC" || cause.code === "UNAUTHORIZED");
