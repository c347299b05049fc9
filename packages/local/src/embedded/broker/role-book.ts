import { type ProducerPair, samePair } from "@krabka/core";
import type { ByteReader, ByteWriter } from "../../state/binary.js";
import { putPair, takePair } from "./request-codec.js";

/** Kafka hands out epochs up to 32766 and keeps 32767 for shutting an id out (`TransactionMetadata`). */
const LAST_EPOCH = 32766;

/**
 * Who may write for which role. Producer ids only grow, over all roles, and no pair is ever given out twice: not even for a
 * role that was forgotten, since only the newest pair of a role that is known is any good, and the next one has a new id.
 */
export class RoleBook {
  /** Those that were silent for longest come first. */
  readonly #pairs = new Map<string, ProducerPair>();
  #nextProducerId = 0n;

  get size(): number {
    return this.#pairs.size;
  }

  /** The ids that may still be written under. */
  get producerIds(): ReadonlySet<bigint> {
    return new Set([...this.#pairs.values()].map(({ producerId }) => producerId));
  }

  current(role: string): ProducerPair | undefined {
    return this.#pairs.get(role);
  }

  isCurrent(role: string, pair: ProducerPair): boolean {
    const current = this.#pairs.get(role);
    return current !== undefined && samePair(current, pair);
  }

  /** The next epoch, or a fresh id once they are used up. */
  mint(role: string): ProducerPair {
    const current = this.#pairs.get(role);
    const pair =
      current === undefined || current.epoch >= LAST_EPOCH
        ? { producerId: this.#takeProducerId(), epoch: 0 }
        : { producerId: current.producerId, epoch: current.epoch + 1 };
    this.#put(role, pair);
    return pair;
  }

  /** The role wrote something. */
  heard(role: string): void {
    const pair = this.#pairs.get(role);
    if (pair !== undefined) this.#put(role, pair);
  }

  /** Forgets so many that were silent for longest. @returns their names */
  forget(count: number): ReadonlySet<string> {
    const forgotten = new Set([...this.#pairs.keys()].slice(0, count));
    for (const role of forgotten) this.#pairs.delete(role);
    return forgotten;
  }

  /** Leaves out so many ids, and ends every pair: each role goes on under an id above them. */
  raise(by: bigint): void {
    this.#nextProducerId += by;
    this.#pairs.clear();
  }

  encode(writer: ByteWriter): void {
    writer
      .int64(this.#nextProducerId)
      .list([...this.#pairs], (to, [role, pair]) => void putPair(to.string(role), pair));
  }

  static decode(reader: ByteReader): RoleBook {
    const book = new RoleBook();
    book.#nextProducerId = reader.int64();
    for (const [role, pair] of reader.list((from) => [from.string(), takePair(from)] as const)) {
      if (pair.producerId >= book.#nextProducerId || pair.epoch > LAST_EPOCH) {
        throw new Error(`role ${JSON.stringify(role)} has a pair that was never given out`);
      }
      book.#pairs.set(role, pair);
    }
    return book;
  }

  #put(role: string, pair: ProducerPair): void {
    this.#pairs.delete(role);
    this.#pairs.set(role, pair);
  }

  #takeProducerId(): bigint {
    const id = this.#nextProducerId;
    this.#nextProducerId += 1n;
    return id;
  }
}
