/** Bytes that end early or hold an impossible length. */
export class WireFormatError extends Error {
  override readonly name = "WireFormatError";
}

/** Reads a Kafka response field by field and refuses to read past its end. */
export class ByteReader {
  readonly #buffer: Buffer;
  #at: number;
  readonly #end: number;

  constructor(bytes: Uint8Array, start = 0, end = bytes.length) {
    this.#buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#at = start;
    this.#end = end;
  }

  get position(): number {
    return this.#at;
  }

  get remaining(): number {
    return this.#end - this.#at;
  }

  #take(size: number): number {
    const at = this.#at;
    if (size < 0 || at + size > this.#end) {
      throw new WireFormatError(`A field of ${size} bytes at byte ${at} does not fit into ${this.#end}`);
    }
    this.#at = at + size;
    return at;
  }

  skip(size: number): void {
    this.#take(size);
  }

  int8(): number {
    return this.#buffer.readInt8(this.#take(1));
  }

  boolean(): boolean {
    return this.int8() !== 0;
  }

  int16(): number {
    return this.#buffer.readInt16BE(this.#take(2));
  }

  int32(): number {
    return this.#buffer.readInt32BE(this.#take(4));
  }

  uint32(): number {
    return this.#buffer.readUInt32BE(this.#take(4));
  }

  int64(): bigint {
    return this.#buffer.readBigInt64BE(this.#take(8));
  }

  /** A view into the response, not a copy. */
  raw(size: number): Buffer {
    const at = this.#take(size);
    return this.#buffer.subarray(at, at + size);
  }

  uvarint(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.#buffer[this.#take(1)] as number;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
    throw new WireFormatError(`A varint of more than 5 bytes ends at byte ${this.#at}`);
  }

  varint(): number {
    const value = this.uvarint();
    return (value >>> 1) ^ -(value & 1);
  }

  varlong(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.#buffer[this.#take(1)] as number;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
    }
    throw new WireFormatError(`A varlong of more than 10 bytes ends at byte ${this.#at}`);
  }

  /** A varlong as a number, for extents and instants in milliseconds; beyond 2^53 it is rounded. */
  varlongNumber(): number {
    const start = this.#at;
    let value = 0;
    for (let factor = 1; factor <= 2 ** 42; factor *= 128) {
      const byte = this.#buffer[this.#take(1)] as number;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    this.#at = start;
    return Number(this.varlong());
  }

  nullableString(): string | null {
    const length = this.int16();
    return length < 0 ? null : this.raw(length).toString("utf8");
  }

  string(): string {
    const text = this.nullableString();
    if (text === null) throw new WireFormatError(`A null string ends at byte ${this.#at} where none may be null`);
    return text;
  }

  nullableBytes(): Buffer | null {
    const length = this.int32();
    return length < 0 ? null : this.raw(length);
  }

  #count(length: number): number {
    // Every element takes at least a byte, so a larger count is damage and must not allocate.
    if (length > this.remaining) throw new WireFormatError(`An array of ${length} elements at byte ${this.#at}`);
    return length;
  }

  array<T>(read: () => T): T[] {
    const length = this.#count(this.int32());
    const items: T[] = [];
    for (let i = 0; i < length; i++) items.push(read());
    return items;
  }

  compactNullableString(): string | null {
    const length = this.uvarint();
    return length === 0 ? null : this.raw(length - 1).toString("utf8");
  }

  compactString(): string {
    return this.compactNullableString() ?? "";
  }

  compactNullableBytes(): Buffer | null {
    const length = this.uvarint();
    return length === 0 ? null : this.raw(length - 1);
  }

  compactArray<T>(read: () => T): T[] {
    const length = this.#count(this.uvarint() - 1);
    const items: T[] = [];
    for (let i = 0; i < length; i++) items.push(read());
    return items;
  }

  /** Reads a section of tagged fields; `read` gets those it knows and must consume nothing of the others. */
  tags(read?: (tag: number, field: ByteReader) => void): void {
    const count = this.uvarint();
    for (let i = 0; i < count; i++) {
      const tag = this.uvarint();
      const size = this.uvarint();
      const at = this.#take(size);
      read?.(tag, new ByteReader(this.#buffer, at, at + size));
    }
  }
}
