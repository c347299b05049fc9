import {
  type CallOptions,
  CallQueue,
  type Deadline,
  FencedError,
  KrabkaError,
  type OutgoingRecord,
  type ProducerPair,
  type RawRecord,
  type Role,
  type TopicPartition,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import { sequenceAfter } from "../broker/fences.js";
import type { BrokerAnswer, BrokerRequest } from "../broker/request.js";
import type { BrokerClient } from "../link/broker-client.js";
import { AnswerLost, type PendingRequest } from "../link/pending-request.js";
import { type Placement, place } from "./placement.js";
import { lostError, refusalError, unexpected } from "./refusals.js";

export interface SessionContext {
  readonly client: BrokerClient;
  readonly wallMs: () => number;
  readonly limitOf: (options: CallOptions | undefined) => Deadline;
  /** @throws {KrabkaError} `UNKNOWN_TOPIC` */
  readonly partitionsOf: (topic: string, limit: Deadline) => Promise<number>;
  readonly onClose: () => void;
}

interface Unsettled {
  readonly request: PendingRequest;
  readonly placement: Placement;
  readonly cause: Error;
}

/** Errors that end a call before anything was sent, as an outcome rather than a rejection. */
const ENDED_EARLY: readonly string[] = ["TIMEOUT", "ABORTED", "UNREACHABLE"];
/** How long the farewell waits for a write that runs. */
const CLOSE_MS = 1000;

/** A writer under one pair. Each write is one request, so it takes effect whole or not at all; none is ever open. */
export class EmbeddedSession implements WriterSession {
  readonly role: Role;
  readonly #context: SessionContext;
  readonly #client: BrokerClient;
  readonly #queue = new CallQueue();
  #pair: ProducerPair;
  /** The next sequence number of each partition. */
  #sequences = new Map<string, number>();
  #mustRemint = false;
  #unsettled: Unsettled | undefined;
  /** A re-mint whose answer is still due: it may have taken effect, so only it can be asked again. */
  #reminting: PendingRequest | undefined;
  #fenced: FencedError | undefined;
  #keyless = 0;
  #closing: Promise<void> | undefined;

  constructor(context: SessionContext, role: Role, pair: ProducerPair) {
    this.#context = context;
    this.#client = context.client;
    this.role = role;
    this.#pair = pair;
  }

  get pair(): ProducerPair {
    return this.#pair;
  }

  get mustRemint(): boolean {
    return this.#mustRemint;
  }

  commit(records: readonly OutgoingRecord[], options?: CallOptions): Promise<WriteOutcome> {
    return this.#write(options, async (limit) => {
      if (records.length === 0) return { status: "committed", positions: [] };
      const placement = await this.#place(records, limit);
      const { role, pair } = this;
      return this.#send({ kind: "commit", role, pair, batches: placement.batches }, placement, limit);
    });
  }

  append(target: TopicPartition, records: readonly RawRecord[], options?: CallOptions): Promise<WriteOutcome> {
    return this.#write(options, async (limit) => {
      if (records.length === 0) return { status: "committed", positions: [] };
      const placement = await this.#placeAt(target, records, limit);
      const name = `${target.partition}/${target.topic}`;
      const sequence = this.#sequences.get(name) ?? 0;
      const [batch] = placement.batches;
      if (batch === undefined) throw new Error("a batch without records");
      const { role, pair } = this;
      const outcome = await this.#send({ kind: "append", role, pair, sequence, batch }, placement, limit);
      if (outcome.status === "committed") this.#sequences.set(name, sequenceAfter(sequence, records.length));
      return outcome;
    });
  }

  retire(producerId: bigint, target: TopicPartition, record: RawRecord, options?: CallOptions): Promise<WriteOutcome> {
    return this.#write(options, async (limit) => {
      if (producerId === this.#pair.producerId) {
        throw new KrabkaError("INVALID_ARGUMENT", `producerId must be one that the role has left; got ${producerId}`);
      }
      const placement = await this.#placeAt(target, [record], limit);
      const [batch] = placement.batches;
      if (batch === undefined) throw new Error("a batch without records");
      const { role, pair } = this;
      return this.#send({ kind: "retire", role, pair, producerId, batch }, placement, limit);
    });
  }

  async remint(options?: CallOptions): Promise<WriteOutcome | undefined> {
    return this.#inTurn(options, async (limit) => {
      if (this.#fenced !== undefined) throw this.#fenced;
      const unsettled = this.#unsettled;
      const answer = await this.#askForEpoch(unsettled, limit);
      if (answer.status === "refused" && answer.reason === "fenced") throw this.#die(answer);
      if (answer.status === "refused") throw refusalError(answer, this.role);
      if (answer.status !== "minted") throw unexpected(answer, "a re-mint");
      this.#pair = answer.pair;
      this.#sequences = new Map();
      this.#mustRemint = false;
      this.#unsettled = undefined;
      unsettled?.request.forget();
      if (unsettled === undefined) return undefined;
      const { request, placement, cause } = unsettled;
      if (request.isUnknowable) return { status: "unknown", cause };
      return answer.settled === null
        ? { status: "aborted", cause }
        : { status: "committed", positions: placement.positions(answer.settled) };
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // Its failures were told to whoever waits for them.
    await this.#context
      .limitOf({ timeoutMs: CLOSE_MS })
      .race(this.#queue.idle)
      .catch(() => undefined);
    this.#unsettled?.request.forget();
    this.#reminting?.abandon();
    this.#reminting?.forget();
    this.#context.onClose();
  }

  async #askForEpoch(unsettled: Unsettled | undefined, limit: Deadline): Promise<BrokerAnswer> {
    const { role, pair } = this;
    const request: BrokerRequest = { kind: "remint", role, pair, unsettled: unsettled?.request.sequence };
    this.#reminting ??= this.#client.send(request);
    const reminting = this.#reminting;
    try {
      const answer = await limit.race(reminting.answer);
      this.#reminting = undefined;
      return answer;
    } catch (error) {
      // With its fate unknown for good, the next try finds out: it is refused if this one took effect.
      if (error instanceof AnswerLost || !reminting.isWaiting) {
        reminting.forget();
        this.#reminting = undefined;
      }
      throw lostError(this.#client.explain(error), "a re-mint");
    }
  }

  async #write(
    options: CallOptions | undefined,
    write: (limit: Deadline) => Promise<WriteOutcome>,
  ): Promise<WriteOutcome> {
    try {
      return await this.#inTurn(options, async (limit) => {
        if (this.#fenced !== undefined) return { status: "fenced", cause: this.#fenced };
        if (this.#mustRemint) {
          throw new KrabkaError("UNKNOWN_OUTCOME", "An answer to an earlier write was lost; call remint first", {
            role: this.role,
          });
        }
        return write(limit);
      });
    } catch (error) {
      if (KrabkaError.is(error) && ENDED_EARLY.includes(error.code)) return { status: "aborted", cause: error };
      throw error;
    }
  }

  async #inTurn<T>(options: CallOptions | undefined, work: (limit: Deadline) => Promise<T>): Promise<T> {
    this.#refuseClosed();
    const limit = this.#context.limitOf(options);
    const leave = (why: Error): Promise<T> => Promise.reject(why);
    return this.#queue.run(limit, leave, async () => {
      this.#refuseClosed();
      limit.throwIfEnded();
      return work(limit);
    });
  }

  #refuseClosed(): void {
    if (this.#closing !== undefined) throw new KrabkaError("CLOSED", "The session was closed", { role: this.role });
  }

  async #place(records: readonly OutgoingRecord[], limit: Deadline): Promise<Placement> {
    const counts = new Map<string, number>();
    for (const { topic } of records) {
      if (!counts.has(topic)) counts.set(topic, await this.#context.partitionsOf(topic, limit));
    }
    const placement = place(records, counts, this.#context.wallMs(), this.#keyless);
    this.#keyless += records.length;
    return placement;
  }

  #placeAt({ topic, partition }: TopicPartition, records: readonly RawRecord[], limit: Deadline): Promise<Placement> {
    return this.#place(
      records.map(({ key, value, headers }) => ({ key, value, headers, topic, partition })),
      limit,
    );
  }

  async #send(request: BrokerRequest, placement: Placement, limit: Deadline): Promise<WriteOutcome> {
    const pending = this.#client.send(request);
    if (pending.bytes.length > this.#client.maxRequestBytes) {
      pending.abandon();
      pending.forget();
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `A write takes at most ${this.#client.maxRequestBytes} bytes; this one takes ${pending.bytes.length}`,
      );
    }
    let answer: BrokerAnswer;
    try {
      answer = await limit.race(pending.answer);
    } catch (error) {
      return this.#gaveUp(pending, placement, this.#client.explain(error) as Error);
    }
    // A late request of this epoch can do no harm here, but whoever asks is promised a new one.
    if (pending.isRepeated && request.kind === "commit") this.#mustRemint = true;
    if (answer.status === "written") return { status: "committed", positions: placement.positions(answer) };
    if (answer.status !== "refused") throw unexpected(answer, request.kind);
    switch (answer.reason) {
      case "fenced":
        return { status: "fenced", cause: this.#die(answer) };
      case "unknown-topic":
      case "topic-differs":
      case "invalid":
        throw refusalError(answer, this.role);
      default:
        return { status: "unknown", cause: refusalError(answer, this.role) };
    }
  }

  /** The call ends without an answer. */
  #gaveUp(pending: PendingRequest, placement: Placement, cause: Error): WriteOutcome {
    pending.abandon();
    if (!pending.isSent) {
      if (KrabkaError.is(cause) && cause.code === "CLOSED") throw cause;
      return { status: "aborted", cause };
    }
    this.#mustRemint = true;
    this.#unsettled = { request: pending, placement, cause };
    return { status: "unknown", cause };
  }

  #die(answer: Extract<BrokerAnswer, { status: "refused" }>): FencedError {
    this.#fenced ??= new FencedError(answer.message, { role: this.role });
    return this.#fenced;
  }
}
