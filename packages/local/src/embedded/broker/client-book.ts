import type { ByteReader, ByteWriter } from "../../state/binary.js";
import type { BrokerAnswer, Origin } from "./request.js";
import { putAnswer, takeAnswer } from "./request-codec.js";

interface KnownClient {
  lastAtMs: number;
  acked: bigint;
  readonly answers: Map<bigint, BrokerAnswer>;
}

/** A client that was silent for longer may be forgotten; what it has unsettled then stays unknown. */
const FORGET_AFTER_MS = 24 * 3_600_000;
/** Of more clients those that were silent for longest are forgotten: far more than can be connected. */
const MAX_CLIENTS = 10_000;
/** Answers that one client may leave unacknowledged: far more than it can have under way. */
const MAX_ANSWERS = 100_000;

/**
 * The answers to the requests that changed something, for as long as their clients have not acknowledged them. So a request
 * that is repeated because its answer was lost is answered again instead of executed again, also by the next owner.
 */
export class ClientBook {
  /** Those that were silent for longest come first. */
  readonly #clients = new Map<string, KnownClient>();

  isKnown(client: string): boolean {
    return this.#clients.has(client);
  }

  register(client: string, atMs: number): void {
    for (const [id, known] of this.#clients) {
      if (id !== client && atMs - known.lastAtMs > FORGET_AFTER_MS) this.#clients.delete(id);
    }
    this.#heard(client, this.#clients.get(client) ?? { lastAtMs: atMs, acked: 0n, answers: new Map() }, atMs);
    const [oldest] = this.#clients.keys();
    if (this.#clients.size > MAX_CLIENTS && oldest !== undefined) this.#clients.delete(oldest);
  }

  /** The answer that the request got before, a refusal of one that must not be executed, or undefined for a new one. */
  answerTo({ client, sequence }: Origin): BrokerAnswer | "unknown-client" | "outdated" | undefined {
    const known = this.#clients.get(client);
    if (known === undefined) return "unknown-client";
    const answer = known.answers.get(sequence);
    if (answer !== undefined) return answer;
    return sequence <= known.acked || known.answers.size >= MAX_ANSWERS ? "outdated" : undefined;
  }

  find(client: string, sequence: bigint): BrokerAnswer | undefined {
    return this.#clients.get(client)?.answers.get(sequence);
  }

  remember({ client, sequence, acked }: Origin, answer: BrokerAnswer, atMs: number): void {
    const known = this.#clients.get(client);
    if (known === undefined) return;
    this.#heard(client, known, atMs);
    known.answers.set(sequence, answer);
    if (acked <= known.acked) return;
    known.acked = acked;
    for (const answered of known.answers.keys()) if (answered <= acked) known.answers.delete(answered);
  }

  #heard(client: string, known: KnownClient, atMs: number): void {
    known.lastAtMs = atMs;
    this.#clients.delete(client);
    this.#clients.set(client, known);
  }

  encode(writer: ByteWriter): void {
    writer.list([...this.#clients], (to, [id, { lastAtMs, acked, answers }]) => {
      to.string(id).int64(BigInt(lastAtMs)).int64(acked);
      to.list([...answers], (into, [sequence, answer]) => void putAnswer(into.int64(sequence), answer));
    });
  }

  static decode(reader: ByteReader): ClientBook {
    const book = new ClientBook();
    const clients = reader.list((from) => {
      const id = from.string();
      const lastAtMs = Number(from.int64());
      const acked = from.int64();
      const answers = from.list((item) => [item.int64(), takeAnswer(item)] as const);
      return [id, { lastAtMs, acked, answers: new Map(answers) }] as const;
    });
    for (const [id, known] of clients) book.#clients.set(id, known);
    return book;
  }
}
