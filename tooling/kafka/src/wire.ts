/** Reads the primitive types of the Kafka protocol; `flexible` ones are compact, since KIP-482. */
export class WireReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get position(): number {
    return this.#at;
  }

  int8(): number {
    return this.#bytes.readInt8(this.#advance(1));
  }

  int16(): number {
    return this.#bytes.readInt16BE(this.#advance(2));
  }

  int32(): number {
    return this.#bytes.readInt32BE(this.#advance(4));
  }

  varint(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.#bytes.readUInt8(this.#advance(1));
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  }

  string(flexible = false): string | null {
    const length = flexible ? this.varint() - 1 : this.int16();
    if (length < 0) return null;
    const start = this.#advance(length);
    return this.#bytes.toString("utf8", start, start + length);
  }

  arrayLength(flexible = false): number {
    return flexible ? this.varint() - 1 : this.int32();
  }

  taggedFields(): void {
    for (let left = this.varint(); left > 0; left -= 1) {
      this.varint();
      this.#advance(this.varint());
    }
  }

  #advance(length: number): number {
    const start = this.#at;
    this.#at += length;
    return start;
  }
}

/** Writes what {@link WireReader} reads. */
export class WireWriter {
  readonly #parts: Buffer[] = [];

  raw(bytes: Buffer): this {
    this.#parts.push(bytes);
    return this;
  }

  int8(value: number): this {
    return this.raw(Buffer.from([value & 0xff]));
  }

  int16(value: number): this {
    const bytes = Buffer.alloc(2);
    bytes.writeInt16BE(value);
    return this.raw(bytes);
  }

  int32(value: number): this {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(value);
    return this.raw(bytes);
  }

  varint(value: number): this {
    const bytes: number[] = [];
    let rest = value;
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
    return this.raw(Buffer.from([...bytes, rest]));
  }

  string(value: string | null, flexible = false): this {
    const length = value === null ? -1 : Buffer.byteLength(value);
    if (flexible) this.varint(length + 1);
    else this.int16(length);
    return value === null ? this : this.raw(Buffer.from(value));
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

/** Kafka's own limit of a request (`socket.request.max.bytes`). */
const LARGEST_FRAME_BYTES = 100 * 1024 * 1024;

/** Cuts a stream of bytes into the frames of the Kafka protocol: a size of four bytes, then that many bytes. */
export class FrameSplitter {
  /** What belongs to no complete frame yet; joined only once a frame is complete. */
  #parts: Buffer[] = [];
  #heldBytes = 0;
  #wantedBytes = 4;

  /** Takes what arrived; returns the frames that are complete now, without their size. */
  push(chunk: Buffer): Buffer[] {
    this.#parts.push(chunk);
    this.#heldBytes += chunk.length;
    const frames: Buffer[] = [];
    if (this.#heldBytes < this.#wantedBytes) return frames;
    let rest = Buffer.concat(this.#parts);
    for (;;) {
      this.#wantedBytes = 4 + (rest.length < 4 ? 0 : contentBytesOf(rest));
      if (rest.length < 4 || rest.length < this.#wantedBytes) break;
      frames.push(rest.subarray(4, this.#wantedBytes));
      rest = rest.subarray(this.#wantedBytes);
    }
    this.#parts = [rest];
    this.#heldBytes = rest.length;
    return frames;
  }
}

const contentBytesOf = (frame: Buffer): number => {
  const sizeBytes = frame.readUInt32BE();
  if (sizeBytes > LARGEST_FRAME_BYTES) throw new Error(`a frame of ${sizeBytes} bytes is not Kafka's protocol`);
  return sizeBytes;
};

/** A frame as it goes over the network. */
export function frame(content: Buffer): Buffer {
  return new WireWriter().int32(content.length).raw(content).bytes();
}
