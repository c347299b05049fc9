// On the socket every message is a frame: uint32 length, then as many bytes.

const LENGTH_BYTES = 4;

export function frameOf(message: Uint8Array): Uint8Array {
  const frame = new Uint8Array(LENGTH_BYTES + message.length);
  new DataView(frame.buffer).setUint32(0, message.length);
  frame.set(message, LENGTH_BYTES);
  return frame;
}

/** Puts frames together from what a socket gives. Holds no more than one frame of the allowed size. */
export class FrameReader {
  /** May be raised once the other side is known. */
  maxFrameBytes: number;
  #chunks: Uint8Array[] = [];
  #size = 0;

  constructor(maxFrameBytes: number) {
    this.maxFrameBytes = maxFrameBytes;
  }

  /** The frames that `chunk` completes. @throws {Error} for one that is larger than allowed */
  *take(chunk: Uint8Array): Generator<Uint8Array, void, void> {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    for (;;) {
      if (this.#size < LENGTH_BYTES) return;
      const first = this.#front(LENGTH_BYTES);
      const length = new DataView(first.buffer, first.byteOffset, first.byteLength).getUint32(0);
      if (length > this.maxFrameBytes) {
        throw new Error(`a frame of ${length} bytes; at most ${this.maxFrameBytes} are taken`);
      }
      if (this.#size < LENGTH_BYTES + length) return;
      const bytes = this.#front(LENGTH_BYTES + length);
      this.#chunks[0] = bytes.subarray(LENGTH_BYTES + length);
      this.#size -= LENGTH_BYTES + length;
      yield bytes.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
    }
  }

  /** The first chunk, joined with those after it until it has `count` bytes. */
  #front(count: number): Uint8Array {
    const [first] = this.#chunks as [Uint8Array];
    if (first.length >= count) return first;
    const whole = Buffer.concat(this.#chunks);
    this.#chunks = [whole];
    return whole;
  }
}
