import { setImmediate } from "node:timers/promises";
import type { StoredBatch } from "./batch-list.js";

/** A batch in a checkpoint: int64 base | uint32 count | int64 atMs | uint32 length | bytes */
const BATCH_HEAD_BYTES = 24;
/** How much is copied at a stretch, so that requests and renewals do not wait for a large state. */
const STRETCH_BYTES = 1024 * 1024;

export type Section = Uint8Array | readonly StoredBatch[];

/** A state as it was at one instant. Batches never change, so it holds on to them instead of copying them. */
export class StateSnapshot {
  readonly #sections: readonly Section[];

  constructor(sections: readonly Section[]) {
    this.#sections = sections;
  }

  async encode(): Promise<Uint8Array> {
    const size = this.#sections.reduce((sum, section) => sum + sizeOf(section), 0);
    const bytes = new Uint8Array(size);
    const view = new DataView(bytes.buffer);
    let at = 0;
    let stretchEnd = STRETCH_BYTES;
    const put = (part: Uint8Array): void => {
      bytes.set(part, at);
      at += part.length;
    };
    for (const section of this.#sections) {
      if (section instanceof Uint8Array) {
        put(section);
        continue;
      }
      for (const batch of section) {
        view.setBigInt64(at, batch.base);
        view.setUint32(at + 8, batch.count);
        view.setBigInt64(at + 12, BigInt(batch.atMs));
        view.setUint32(at + 20, batch.bytes.length);
        at += BATCH_HEAD_BYTES;
        put(batch.bytes);
        if (at < stretchEnd) continue;
        stretchEnd = at + STRETCH_BYTES;
        await setImmediate();
      }
    }
    return bytes;
  }
}

const sizeOf = (section: Section): number =>
  section instanceof Uint8Array
    ? section.length
    : section.reduce((sum, { bytes }) => sum + BATCH_HEAD_BYTES + bytes.length, 0);
