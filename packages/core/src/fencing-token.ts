import { KrabkaError } from "./errors.js";
import { showValue } from "./show-value.js";

/** What the transaction coordinator mints for a role: producer id (int64, >= 0) and epoch (int16, >= 0). */
export interface ProducerPair {
  readonly producerId: bigint;
  readonly epoch: number;
}

export const samePair = (a: ProducerPair, b: ProducerPair): boolean =>
  a.producerId === b.producerId && a.epoch === b.epoch;

export const MAX_INT64 = 2n ** 63n - 1n;
export const MIN_INT64 = -(2n ** 63n);
export const MAX_EPOCH = 32767;

const order = (a: bigint | number, b: bigint | number): -1 | 0 | 1 => (a < b ? -1 : a > b ? 1 : 0);

/** JSON form: 64-bit values are strings, so no parser rounds them. */
export interface FencingTokenJson {
  readonly term: string;
  readonly producerId: string;
  readonly epoch: number;
}

/**
 * Proof of leadership that a resource can check by comparing: of two tokens of one role the later leader's is greater.
 *
 * The order is `term`, then `producerId`, then `epoch`. The term is the log offset of the leader's grant. The pair alone
 * is no order in time: producer ids come in blocks of 1,000 per broker, and exhausting the epoch of a role whose
 * coordinator had moved went from 2000:32766 to 1013:0 (measured on three brokers of Kafka 4.1).
 * A resource that can keep a single 64-bit integer keeps the term.
 */
export class FencingToken {
  readonly term: bigint;
  readonly producerId: bigint;
  readonly epoch: number;

  private constructor(term: bigint, producerId: bigint, epoch: number) {
    this.term = term;
    this.producerId = producerId;
    this.epoch = epoch;
  }

  /**
   * @param parts `term` is 0 where the token comes from elsewhere and carries none.
   * @throws {KrabkaError} `INVALID_ARGUMENT` outside 0..2^63-1 (term, producer id) or 0..32767 (epoch).
   */
  static of(parts: { readonly term?: bigint; readonly producerId: bigint; readonly epoch: number }): FencingToken {
    const { term = 0n, producerId, epoch } = parts;
    if (typeof term !== "bigint" || term < 0n || term > MAX_INT64) throw invalid("term", "a bigint in 0..2^63-1", term);
    if (typeof producerId !== "bigint" || producerId < 0n || producerId > MAX_INT64) {
      throw invalid("producerId", "a bigint in 0..2^63-1", producerId);
    }
    if (!Number.isInteger(epoch) || epoch < 0 || epoch > MAX_EPOCH) {
      throw invalid("epoch", "an integer in 0..32767", epoch);
    }
    return new FencingToken(term, producerId, epoch);
  }

  /**
   * Reads `term:producerId:epoch`, or `producerId:epoch` with term 0.
   *
   * @throws {KrabkaError} `INVALID_ARGUMENT`
   */
  static parse(text: string): FencingToken {
    const match = typeof text === "string" ? /^(?:(\d{1,19}):)?(\d{1,19}):(\d{1,5})$/.exec(text) : null;
    if (match === null) {
      throw invalid("fencing token", "term:producerId:epoch or producerId:epoch in decimal digits", text);
    }
    return FencingToken.of({
      term: BigInt(match[1] ?? 0),
      producerId: BigInt(match[2] as string),
      epoch: Number(match[3]),
    });
  }

  /** The inverse of `toJSON`. @throws {KrabkaError} `INVALID_ARGUMENT` */
  static fromJSON(json: FencingTokenJson): FencingToken {
    const { term, producerId, epoch }: { [field in keyof FencingTokenJson]?: unknown } = json ?? {};
    if (typeof term !== "string") throw invalid("term", "a string of decimal digits", term);
    if (typeof producerId !== "string") throw invalid("producerId", "a string of decimal digits", producerId);
    if (typeof epoch !== "number") throw invalid("epoch", "a number", epoch);
    return FencingToken.parse(`${term}:${producerId}:${epoch}`);
  }

  static compare(a: FencingToken, b: FencingToken): -1 | 0 | 1 {
    return order(a.term, b.term) || order(a.producerId, b.producerId) || order(a.epoch, b.epoch);
  }

  compareTo(other: FencingToken): -1 | 0 | 1 {
    return FencingToken.compare(this, other);
  }

  equals(other: FencingToken): boolean {
    return FencingToken.compare(this, other) === 0;
  }

  toString(): string {
    return `${this.term}:${this.producerId}:${this.epoch}`;
  }

  toJSON(): FencingTokenJson {
    return { term: String(this.term), producerId: String(this.producerId), epoch: this.epoch };
  }
}

const invalid = (what: string, wanted: string, given: unknown): KrabkaError =>
  new KrabkaError("INVALID_ARGUMENT", `${what} must be ${wanted}; got ${showValue(given)}`);
