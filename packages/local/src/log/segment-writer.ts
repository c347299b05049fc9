import { type DurableFile, writeAll } from "./file-system.js";

/**
 * Puts frames at the end of a segment, each durable before the next.
 *
 * A write into space that the file has already need not wait until a new size is durable too, which takes a file system's
 * journal. So the write that needs new space takes zeros along. That they are there is a hint and no more: no frame relies on
 * it, and a disk without room for them takes the frame alone.
 */
export class SegmentWriter {
  readonly #file: DurableFile;
  readonly #aheadBytes: number;
  readonly #segmentBytes: number;
  /** Where the known space ends. */
  #allocatedBytes = 0;

  /** @param aheadBytes Space comes in steps of this, up to `segmentBytes`; 0 for none. */
  constructor(file: DurableFile, aheadBytes: number, segmentBytes: number) {
    this.#file = file;
    this.#aheadBytes = aheadBytes;
    this.#segmentBytes = segmentBytes;
  }

  /** Puts `frame` at `position`, the end of the frame before it. After a failure nothing more may be written. */
  async write(frame: Uint8Array, position: number): Promise<void> {
    try {
      await this.#put(frame, position);
    } catch (error) {
      // Without the rest of it the next opening has nothing to cut. If that fails too, it cuts.
      await this.#file.truncate(position).catch(() => undefined);
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async #put(frame: Uint8Array, position: number): Promise<void> {
    const end = position + frame.length;
    const wanted = this.#wantedBytes(end);
    if (wanted <= end) return writeAll(this.#file, frame, position);
    const padded = new Uint8Array(wanted - position);
    padded.set(frame);
    try {
      await writeAll(this.#file, padded, position);
      this.#allocatedBytes = wanted;
    } catch (error) {
      if (!isOutOfSpace(error)) throw error;
      // Written anew as a whole, so it does not matter what the write that failed left of it.
      await writeAll(this.#file, frame, position);
    }
  }

  /** Where the file should end once it holds a frame up to `end`. */
  #wantedBytes(end: number): number {
    if (end <= this.#allocatedBytes || this.#aheadBytes === 0) return end;
    return Math.min(Math.ceil(end / this.#aheadBytes) * this.#aheadBytes, this.#segmentBytes);
  }
}

const isOutOfSpace = (error: unknown): boolean =>
  ["ENOSPC", "EDQUOT"].includes((error as NodeJS.ErrnoException).code ?? "");
