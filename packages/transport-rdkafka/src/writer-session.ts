import {
  type CallOptions,
  CallQueue,
  type Clock,
  Deadline,
  KrabkaError,
  type OutgoingRecord,
  type ProducerPair,
  type Role,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import { UNSUPPORTED_REASONS } from "./capabilities.js";
import type { ProducerInstance, ProducerMessage } from "./producer-instance.js";
import { Transaction } from "./transaction.js";
import type { WritePlanner } from "./write-plan.js";

type State =
  | { readonly kind: "ready" }
  | { readonly kind: "spent" }
  | { readonly kind: "fenced"; readonly cause: Error }
  | { readonly kind: "closed" };

export interface SessionParts {
  readonly role: Role;
  readonly pair: ProducerPair;
  readonly producer: ProducerInstance;
  readonly planner: WritePlanner;
  readonly clock: Clock;
  readonly requestTimeoutMs: number;
  /** Told once, when the session is closed. */
  readonly onClose: (session: RdKafkaSession, closed: Promise<void>) => void;
}

/** Writes in transactions of one native producer, under the one pair that it was given. */
export class RdKafkaSession implements WriterSession {
  readonly role: Role;
  readonly pair: ProducerPair;
  readonly #parts: SessionParts;
  readonly #queue = new CallQueue();
  #state: State = { kind: "ready" };
  #endsSent = 0;
  #closing: Promise<void> | undefined;

  constructor(parts: SessionParts) {
    this.role = parts.role;
    this.pair = parts.pair;
    this.#parts = parts;
  }

  get mustRemint(): boolean {
    return this.#state.kind === "spent";
  }

  async commit(records: readonly OutgoingRecord[], options?: CallOptions): Promise<WriteOutcome> {
    const deadline = new Deadline(this.#parts.clock, options, this.#parts.requestTimeoutMs);
    const notSent = (cause: Error): WriteOutcome => ({ status: "aborted", cause });
    if (deadline.ended !== undefined) return notSent(deadline.ended);
    return await this.#queue.run(deadline, notSent, () => this.#commit(records, deadline));
  }

  append(): Promise<WriteOutcome> {
    return Promise.reject(unsupported("fencedAppend"));
  }

  retire(): Promise<WriteOutcome> {
    return Promise.reject(unsupported("fencedAppend"));
  }

  remint(): Promise<WriteOutcome | undefined> {
    return Promise.reject(unsupported("conditionalRemint"));
  }

  close(): Promise<void> {
    if (this.#closing === undefined) {
      this.#state = { kind: "closed" };
      this.#closing = this.#parts.producer.close();
      this.#parts.onClose(this, this.#closing);
    }
    return this.#closing;
  }

  async #commit(records: readonly OutgoingRecord[], deadline: Deadline): Promise<WriteOutcome> {
    this.#requireOpen();
    if (this.#state.kind === "fenced") return { status: "fenced", cause: this.#state.cause };
    if (this.#state.kind === "spent") {
      throw new KrabkaError("UNKNOWN_OUTCOME", "An answer was lost; this session takes no further write", {
        role: this.role,
      });
    }
    if (records.length === 0) return { status: "committed", positions: [] };
    let messages: readonly ProducerMessage[];
    try {
      messages = await this.#parts.planner.plan(records, deadline);
    } catch (error) {
      this.#requireOpen();
      if (deadline.ended !== undefined) return { status: "aborted", cause: deadline.ended };
      if (KrabkaError.is(error) && error.code === "UNREACHABLE") return { status: "aborted", cause: error };
      throw error;
    }
    this.#requireOpen();
    const transaction = new Transaction(this.#parts.producer, messages, deadline, this.#endsSent);
    const { outcome, endsSent, reusable } = await transaction.run();
    this.#endsSent += endsSent;
    if (this.#state.kind === "ready") {
      if (outcome.status === "fenced") this.#state = { kind: "fenced", cause: outcome.cause };
      else if (!reusable) this.#state = { kind: "spent" };
    }
    // A right that is missing is the caller's to know, not a failure that passes.
    if (outcome.status === "aborted" && KrabkaError.is(outcome.cause) && outcome.cause.code === "UNAUTHORIZED") {
      throw outcome.cause;
    }
    return outcome;
  }

  #requireOpen(): void {
    if (this.#state.kind === "closed") throw new KrabkaError("CLOSED", "The session was closed", { role: this.role });
  }
}

const unsupported = (what: "fencedAppend" | "conditionalRemint"): KrabkaError =>
  new KrabkaError("UNSUPPORTED", UNSUPPORTED_REASONS[what]);
