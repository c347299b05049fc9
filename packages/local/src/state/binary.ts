import { decodeUtf8, encodeUtf8 } from "@krabka/core";

/** Puts fields one after the other, big-endian. */
export class ByteWriter {
  #bytes = new Uint8Array(256);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  uint8(value: number): this {
    const at = this.#reserve(1);
    this.#view.setUint8(at, value);
    return this;
  }

  uint32(value: number): this {
    const at = this.#reserve(4);
    this.#view.setUint32(at, value);
    return this;
  }

  int64(value: bigint): this {
    const at = this.#reserve(8);
    this.#view.setBigInt64(at, value);
    return this;
  }

  /** Whole milliseconds. */
  ms(value: number): this {
    return this.int64(BigInt(value));
  }

  bytes(value: Uint8Array): this {
    this.uint32(value.length);
    const at = this.#reserve(value.length);
    this.#bytes.set(value, at);
    return this;
  }

  string(value: string): this {
    return this.bytes(encodeUtf8(value));
  }

  /** A presence byte, and what `put` writes if there is a value. */
  optional<T>(value: T | undefined, put: (writer: this, value: T) => void): this {
    this.uint8(value === undefined ? 0 : 1);
    if (value !== undefined) put(this, value);
    return this;
  }

  list<T>(values: Iterable<T> & { readonly length: number }, put: (writer: this, value: T) => void): this {
    this.uint32(values.length);
    for (const value of values) put(this, value);
    return this;
  }

  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  /** May replace the buffer and its view, so it comes before their use. */
  #reserve(count: number): number {
    const at = this.#length;
    this.#length += count;
    if (this.#length > this.#bytes.length) {
      const next = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length));
      next.set(this.#bytes.subarray(0, at));
      this.#bytes = next;
      this.#view = new DataView(next.buffer);
    }
    return at;
  }
}

/** Takes fields one after the other and refuses to read past the end. What it throws is for the caller to place. */
export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** How many bytes were taken. */
  get at(): number {
    return this.#at;
  }

  uint8(): number {
    return this.#view.getUint8(this.#take(1));
  }

  uint32(): number {
    return this.#view.getUint32(this.#take(4));
  }

  int64(): bigint {
    return this.#view.getBigInt64(this.#take(8));
  }

  ms(): number {
    const value = Number(this.int64());
    if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${value} is no instant`);
    return value;
  }

  /** A copy, which outlives what is read from. */
  bytes(): Uint8Array {
    const length = this.uint32();
    const at = this.#take(length);
    return this.#bytes.slice(at, at + length);
  }

  /** What `bytes` gives, without the copy: for what is only looked at. */
  view(): Uint8Array {
    const length = this.uint32();
    const at = this.#take(length);
    return this.#bytes.subarray(at, at + length);
  }

  string(): string {
    const length = this.uint32();
    const at = this.#take(length);
    return decodeUtf8(this.#bytes, at, at + length);
  }

  optional<T>(take: (reader: this) => T): T | undefined {
    const present = this.uint8();
    if (present > 1) throw new Error(`a presence byte is ${present}`);
    return present === 0 ? undefined : take(this);
  }

  list<T>(take: (reader: this) => T): T[] {
    const values: T[] = [];
    for (let left = this.uint32(); left > 0; left--) values.push(take(this));
    return values;
  }

  end(): void {
    if (this.#at !== this.#bytes.length) throw new Error(`${this.#bytes.length - this.#at} bytes too many`);
  }

  #take(count: number): number {
    const at = this.#at;
    if (at + count > this.#bytes.length) throw new Error(`the bytes end inside a field that starts at byte ${at}`);
    this.#at += count;
    return at;
  }
}
