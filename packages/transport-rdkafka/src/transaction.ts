import { Deadline, KrabkaError, type WriteOutcome } from "@krabka/core";
import type { NativeError } from "./native-binding.js";
import {
  codeOf,
  errorOf,
  INCONSISTENT,
  isFence,
  leavesEpochAlone,
  refusesEndTxn,
  TOPIC_AUTHORIZATION_FAILED,
  verdictOn,
} from "./native-errors.js";
import type { Delivery, ProducerInstance, ProducerMessage } from "./producer-instance.js";
import { Statistics } from "./statistics.js";

/** What a transaction left behind. */
export interface Ended {
  readonly outcome: WriteOutcome;
  /**
   * Whether the next transaction may use this producer: not when an answer was lost, since a late request could land on
   * it, nor when librdkafka would have to raise the epoch by itself.
   */
  readonly reusable: boolean;
  /** How many EndTxn requests it took; counted only where the producer is reusable. */
  readonly endsSent: number;
}

/** Longest stay of one call on a thread of libuv's pool; librdkafka goes on by itself in between. */
const FIRST_SLICE_MS = 250;
const NEXT_SLICE_MS = 25;
const LONGEST_PAUSE_MS = 200;
/** A commit that was faster had no request repeated: librdkafka pauses 80 ms at least before it repeats one. */
const SUSPICIOUS_MS = 40;
/** For what is asked of librdkafka itself, without any broker. */
const LOCAL_LIMIT_MS = 500;
/** Records that are handed over before the event loop gets its turn. */
const HAND_OVER_RECORDS = 1_000;

/** One transaction under a minted producer, from its begin to what became of it. */
export class Transaction {
  readonly #producer: ProducerInstance;
  readonly #messages: readonly ProducerMessage[];
  readonly #deadline: Deadline;
  /** EndTxn requests that this producer sent before. */
  readonly #endsBefore: number;
  readonly #statisticsBefore: string;
  readonly #deliveries: Delivery[] = [];
  #undelivered = 0;
  #endsCounted = 1;
  #abortRefusal: KrabkaError | undefined;
  #onDelivered: () => void = () => undefined;

  constructor(
    producer: ProducerInstance,
    messages: readonly ProducerMessage[],
    deadline: Deadline,
    endsBefore: number,
  ) {
    this.#producer = producer;
    this.#messages = messages;
    this.#deadline = deadline;
    this.#endsBefore = endsBefore;
    this.#statisticsBefore = producer.latestStatisticsText;
  }

  async run(): Promise<Ended> {
    try {
      const begun = await this.#producer.beginTransaction(this.#deadline);
      if (!begun.ok) return this.#notBegun(begun.error);
    } catch (error) {
      return aborted(error as Error, true);
    }
    const late = this.#deadline.ended;
    if (late !== undefined) return await this.#undone(late, true);
    const refusal = await this.#handOver();
    if (refusal !== undefined) return await this.#undo(refusal);
    return await this.#commit();
  }

  #notBegun(error: NativeError): Ended {
    const cause = errorOf(error, "Beginning a transaction");
    if (verdictOn(error) === "fenced") return fenced(cause);
    return aborted(cause, false);
  }

  /** @returns the first error, after which the rest is not handed over */
  async #handOver(): Promise<NativeError | undefined> {
    for (const [index, message] of this.#messages.entries()) {
      if (index % HAND_OVER_RECORDS === HAND_OVER_RECORDS - 1) await new Promise(setImmediate);
      this.#undelivered += 1;
      const code = this.#producer.produce(message, (delivery) => {
        this.#deliveries[index] = delivery;
        this.#delivered();
      });
      if (code !== 0) {
        this.#undelivered -= 1;
        return { message: "", code };
      }
    }
    return undefined;
  }

  #delivered(): void {
    this.#undelivered -= 1;
    if (this.#undelivered === 0) this.#onDelivered();
  }

  async #commit(): Promise<Ended> {
    const startedAtMs = this.#deadline.clock.monotonicMs();
    try {
      for (let slice = 0; ; slice++) {
        if (slice === 0 || !(await this.#isEndUnderWay())) {
          const limitMs = Math.ceil(Math.min(slice === 0 ? FIRST_SLICE_MS : NEXT_SLICE_MS, this.#deadline.remainingMs));
          const lane = slice === 0 ? "quick" : "patient";
          const answer = await this.#producer.commitTransaction(lane, Math.max(1, limitMs), this.#deadline);
          if (answer.ok) return await this.#committed(this.#deadline.clock.monotonicMs() - startedAtMs);
          const verdict = verdictOn(answer.error);
          if (verdict !== "again") return await this.#failed(answer.error);
        }
        await this.#deadline.pause(Math.min(LONGEST_PAUSE_MS, 10 * 2 ** Math.min(slice, 10)));
      }
    } catch (error) {
      // The time limit, the signal or the end of the session, while librdkafka was still at it.
      return unknown(error as Error);
    }
  }

  /**
   * Whether an EndTxn waits for its answer. Then `commit_transaction` must not be called again: where such a call runs out
   * before librdkafka's own thread took it up, as on a busy machine, librdkafka takes the answer for an abort's and ends
   * the process by an assertion (2.12, `rd_kafka_txn_endtxn_complete`).
   */
  async #isEndUnderWay(): Promise<boolean> {
    // A call that ran out may still wait in librdkafka's queue, which is emptied between two statistics.
    await this.#producer.freshStatistics(this.#deadline);
    const { transactionState } = await this.#producer.freshStatistics(this.#deadline);
    return transactionState === "CommittingTransaction";
  }

  async #committed(tookMs: number): Promise<Ended> {
    // librdkafka had every report before it sent EndTxn; they come in by another way than the answer.
    await this.#reports();
    const positions = this.#messages.map(({ topic, partition }, index) => {
      const delivery = this.#deliveries[index];
      return { topic, partition, offset: delivery !== undefined && "offset" in delivery ? delivery.offset : -1n };
    });
    const reusable = tookMs < SUSPICIOUS_MS || !(await this.#lostAnswer());
    return { outcome: { status: "committed", positions }, reusable, endsSent: 1 };
  }

  /** The commit was answered with an error that is no reason to repeat it. */
  async #failed(error: NativeError): Promise<Ended> {
    const code = codeOf(error);
    const ends = await this.#endsSent();
    const cause = errorOf(error, "Committing a transaction");
    // Of two requests the first may have been executed, so a refusal of the second says nothing.
    const refused = ends === 0 || (ends === 1 && refusesEndTxn(code));
    if (!refused) return unknown(cause);
    if (verdictOn(error) === "abort" && ends === 0) return await this.#undo(error);
    return isFence(code) ? fenced(cause) : aborted(cause, false);
  }

  /** Nothing was asked to be committed: aborts, where librdkafka does no more than that. */
  async #undo(error: NativeError): Promise<Ended> {
    let code = codeOf(error);
    if (code === INCONSISTENT) {
      await this.#reports();
      for (const delivery of this.#deliveries) {
        if (delivery !== undefined && "code" in delivery && code === INCONSISTENT) code = delivery.code;
      }
    }
    const refusal = code === error.code ? error : { message: "", code };
    const cause = errorOf(refusal, "Writing in a transaction", this.#right(code));
    if (isFence(code)) return fenced(cause);
    return await this.#undone(cause, leavesEpochAlone(code));
  }

  /** @param mayAbort whether an abort is no more than that */
  async #undone(cause: KrabkaError, mayAbort: boolean): Promise<Ended> {
    const reusable = mayAbort && (await this.#abort());
    const refusal = this.#abortRefusal;
    return aborted(refusal === undefined ? cause : notAborted(cause, refusal), reusable, this.#endsCounted);
  }

  /** What a user lacks who is refused with this code. */
  #right(code: number): string | undefined {
    if (code !== TOPIC_AUTHORIZATION_FAILED) return undefined;
    const topics = [...new Set(this.#messages.map(({ topic }) => JSON.stringify(topic)))];
    return `Write on topic ${topics.join(" and ")}`;
  }

  /** @returns whether librdkafka is ready for the next transaction */
  async #abort(): Promise<boolean> {
    const deadline = this.#deadline.ended === undefined ? this.#deadline : this.#local();
    try {
      for (let slice = 0; ; slice++) {
        const limitMs = slice === 0 ? FIRST_SLICE_MS : NEXT_SLICE_MS;
        const lane = slice === 0 ? "quick" : "patient";
        const answer = await this.#producer.abortTransaction(lane, limitMs, deadline);
        if (answer.ok) return !(await this.#lostAnswer());
        if (verdictOn(answer.error) !== "again") {
          this.#abortRefusal = errorOf(answer.error, "Aborting a transaction");
          return false;
        }
        await deadline.pause(Math.min(LONGEST_PAUSE_MS, 10 * 2 ** Math.min(slice, 10)));
      }
    } catch {
      return false;
    }
  }

  async #reports(): Promise<void> {
    if (this.#undelivered === 0) return;
    const all = new Promise<void>((resolve) => {
      this.#onDelivered = resolve;
    });
    await this.#producer.whileBusy(() => all);
  }

  #local(): Deadline {
    return new Deadline(this.#deadline.clock, undefined, LOCAL_LIMIT_MS);
  }

  /** How many EndTxn requests this transaction took; more than can be explained when that can't be learned. */
  async #endsSent(): Promise<number> {
    try {
      return (await this.#producer.freshStatistics(this.#local())).sent("EndTxn") - this.#endsBefore;
    } catch {
      return Number.POSITIVE_INFINITY;
    }
  }

  async #lostAnswer(): Promise<boolean> {
    if (this.#statisticsBefore === "") return true;
    const before = Statistics.parse(this.#statisticsBefore);
    try {
      const now = await this.#producer.freshStatistics(this.#local());
      const samePair = now.pair?.producerId === before.pair?.producerId && now.pair?.epoch === before.pair?.epoch;
      const troubles = now.coordinatorTroubles - before.coordinatorTroubles;
      this.#endsCounted = now.sent("EndTxn") - this.#endsBefore;
      return !samePair || troubles > 0 || this.#endsCounted > 1;
    } catch {
      return true;
    }
  }
}

/** What failed first is what a caller has to know; that the abort failed as well comes behind it. */
const notAborted = ({ code, message }: KrabkaError, refusal: KrabkaError): KrabkaError =>
  new KrabkaError(code, `${message}; the abort after it was refused`, { cause: refusal });

const aborted = (cause: Error, reusable: boolean, endsSent = 0): Ended => ({
  outcome: { status: "aborted", cause },
  reusable,
  endsSent,
});

const fenced = (cause: Error): Ended => ({ outcome: { status: "fenced", cause }, reusable: false, endsSent: 0 });

const unknown = (why: Error): Ended => ({
  outcome: {
    status: "unknown",
    cause: new KrabkaError("UNKNOWN_OUTCOME", "The transaction may or may not be committed", { cause: why }),
  },
  reusable: false,
  endsSent: 0,
});
