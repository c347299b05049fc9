/** Builds a Kafka request field by field: big-endian, growing as needed. */
export class ByteWriter {
  #buffer: Buffer;
  #length = 0;

  constructor(initialBytes = 256) {
    this.#buffer = Buffer.allocUnsafe(initialBytes);
  }

  /** What was written so far; valid until the next write. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  get length(): number {
    return this.#length;
  }

  #room(size: number): number {
    const at = this.#length;
    const needed = at + size;
    if (needed > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
      this.#buffer.copy(grown, 0, 0, at);
      this.#buffer = grown;
    }
    this.#length = needed;
    return at;
  }

  int8(value: number): this {
    const at = this.#room(1);
    this.#buffer.writeInt8(value, at);
    return this;
  }

  boolean(value: boolean): this {
    return this.int8(value ? 1 : 0);
  }

  int16(value: number): this {
    const at = this.#room(2);
    this.#buffer.writeInt16BE(value, at);
    return this;
  }

  int32(value: number): this {
    const at = this.#room(4);
    this.#buffer.writeInt32BE(value, at);
    return this;
  }

  uint32(value: number): this {
    const at = this.#room(4);
    this.#buffer.writeUInt32BE(value, at);
    return this;
  }

  int64(value: bigint): this {
    const at = this.#room(8);
    this.#buffer.writeBigInt64BE(value, at);
    return this;
  }

  raw(bytes: Uint8Array): this {
    const at = this.#room(bytes.length);
    this.#buffer.set(bytes, at);
    return this;
  }

  /** Unsigned varint, at most 32 bits. */
  uvarint(value: number): this {
    let rest = value >>> 0;
    while (rest > 0x7f) {
      this.int8((((rest & 0x7f) | 0x80) << 24) >> 24);
      rest >>>= 7;
    }
    return this.int8(rest);
  }

  /** Zigzag varint, 32 bits. */
  varint(value: number): this {
    return this.uvarint((value << 1) ^ (value >> 31));
  }

  /** Zigzag varint, 64 bits. */
  varlong(value: bigint): this {
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    while (rest > 0x7fn) {
      this.int8(((Number(rest & 0x7fn) | 0x80) << 24) >> 24);
      rest >>= 7n;
    }
    return this.int8(Number(rest));
  }

  string(text: string): this {
    const bytes = Buffer.from(text, "utf8");
    return this.int16(bytes.length).raw(bytes);
  }

  nullableString(text: string | null): this {
    return text === null ? this.int16(-1) : this.string(text);
  }

  bytesField(bytes: Uint8Array): this {
    return this.int32(bytes.length).raw(bytes);
  }

  array<T>(items: readonly T[], write: (item: T) => void): this {
    this.int32(items.length);
    for (const item of items) write(item);
    return this;
  }

  /** A string of the flexible encoding (KIP-482): length + 1 as unsigned varint. */
  compactString(text: string): this {
    const bytes = Buffer.from(text, "utf8");
    return this.uvarint(bytes.length + 1).raw(bytes);
  }

  compactArray<T>(items: readonly T[], write: (item: T) => void): this {
    this.uvarint(items.length + 1);
    for (const item of items) write(item);
    return this;
  }

  /** An empty section of tagged fields (KIP-482). */
  noTags(): this {
    return this.int8(0);
  }
}
