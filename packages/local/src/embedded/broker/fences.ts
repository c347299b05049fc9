import { MAX_EPOCH, type ProducerPair } from "@krabka/core";
import type { ByteReader, ByteWriter } from "../../state/binary.js";

interface Batch {
  readonly sequence: number;
  readonly count: number;
  readonly base: bigint;
  readonly atMs: number;
}

interface Fence {
  epoch: number;
  nextSequence: number;
  readonly batches: Batch[];
}

/** As many as Kafka keeps for each producer. */
const REMEMBERED_BATCHES = 5;

/** Sequence numbers have 32 bits and begin anew after the last. */
export const sequenceAfter = (sequence: number, count: number): number => (sequence + count) % 2 ** 32;

/** What one partition knows of the producers that wrote to it: the newest epoch of each id, and its latest appends. */
export class Fences {
  readonly #fences = new Map<bigint, Fence>();

  isShutOut({ producerId, epoch }: ProducerPair): boolean {
    return (this.#fences.get(producerId)?.epoch ?? -1) > epoch;
  }

  nextSequence({ producerId, epoch }: ProducerPair): number {
    const fence = this.#fences.get(producerId);
    return fence?.epoch === epoch ? fence.nextSequence : 0;
  }

  /** The append that this one repeats. */
  repeated({ producerId, epoch }: ProducerPair, sequence: number, count: number): Batch | undefined {
    const fence = this.#fences.get(producerId);
    if (fence?.epoch !== epoch) return undefined;
    return fence.batches.find((batch) => batch.sequence === sequence && batch.count === count);
  }

  /** From now on older epochs of the id are refused here. */
  raise({ producerId, epoch }: ProducerPair): Fence {
    let fence = this.#fences.get(producerId);
    if (fence === undefined || fence.epoch < epoch) {
      fence = { epoch, nextSequence: 0, batches: [] };
      this.#fences.set(producerId, fence);
    }
    return fence;
  }

  appended(pair: ProducerPair, batch: Batch): void {
    const fence = this.raise(pair);
    fence.nextSequence = sequenceAfter(batch.sequence, batch.count);
    fence.batches.push(batch);
    if (fence.batches.length > REMEMBERED_BATCHES) fence.batches.shift();
  }

  /** Forgets all other ids. For ids that no pair of any role has, since those are refused everywhere anyway. */
  keepOnly(producerIds: ReadonlySet<bigint>): void {
    for (const id of this.#fences.keys()) if (!producerIds.has(id)) this.#fences.delete(id);
  }

  encode(writer: ByteWriter): void {
    writer.list([...this.#fences], (to, [producerId, { epoch, nextSequence, batches }]) => {
      to.int64(producerId).uint32(epoch).uint32(nextSequence);
      to.list(batches, (into, { sequence, count, base, atMs }) =>
        into.uint32(sequence).uint32(count).int64(base).int64(BigInt(atMs)),
      );
    });
  }

  static decode(reader: ByteReader): Fences {
    const fences = new Fences();
    for (let left = reader.uint32(); left > 0; left--) {
      const producerId = reader.int64();
      const epoch = reader.uint32();
      if (epoch > MAX_EPOCH) throw new Error(`${epoch} is no epoch`);
      const nextSequence = reader.uint32();
      const batches = reader.list((from) => ({
        sequence: from.uint32(),
        count: from.uint32(),
        base: from.int64(),
        atMs: Number(from.int64()),
      }));
      fences.#fences.set(producerId, { epoch, nextSequence, batches });
    }
    return fences;
  }
}
