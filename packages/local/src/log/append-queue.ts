import { recordBytes } from "./frame.js";

interface Waiting {
  readonly record: Uint8Array;
  readonly resolve: (position: bigint) => void;
  readonly reject: (error: Error) => void;
}

/** Stores records under one sync and returns the position of the first. */
export type StoreRecords = (records: readonly Uint8Array[]) => Promise<bigint>;

/** Group commit: records that come while the disk works wait here and are stored together. */
export class AppendQueue {
  readonly #store: StoreRecords;
  readonly #maxBatchBytes: number;
  readonly #waiting: Waiting[] = [];
  #draining: Promise<void> | undefined;

  constructor(maxBatchBytes: number, store: StoreRecords) {
    this.#maxBatchBytes = maxBatchBytes;
    this.#store = store;
  }

  push(record: Uint8Array): Promise<bigint> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ record, resolve, reject });
      this.#draining ??= this.#drain();
    });
  }

  /** Rejects what waits; what is being stored is not its business. */
  refuse(error: Error): void {
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  /** Resolves once nothing waits and nothing is being stored. */
  async idle(): Promise<void> {
    await this.#draining;
  }

  async #drain(): Promise<void> {
    // Calls of the same turn share the first sync already.
    await Promise.resolve();
    while (this.#waiting.length > 0) await this.#storeBatch(this.#takeBatch());
    this.#draining = undefined;
  }

  #takeBatch(): readonly Waiting[] {
    let bytes = 0;
    let count = 0;
    for (const { record } of this.#waiting) {
      bytes += recordBytes(record);
      if (count > 0 && bytes > this.#maxBatchBytes) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }

  async #storeBatch(batch: readonly Waiting[]): Promise<void> {
    try {
      const first = await this.#store(batch.map(({ record }) => record));
      for (const [index, { resolve }] of batch.entries()) resolve(first + BigInt(index));
    } catch (error) {
      for (const { reject } of batch) reject(error as Error);
    }
  }
}
