import type { PartitionRef } from "../cluster/protocol.js";
import { partitionKey } from "./write-plan.js";

/** The sequence numbers of one pair; each partition counts its records from 0, in transactions and out of them. */
export class Sequences {
  readonly #next = new Map<string, number>();

  next(target: PartitionRef): number {
    return this.#next.get(partitionKey(target)) ?? 0;
  }

  used(target: PartitionRef, records: number): void {
    this.#next.set(partitionKey(target), this.next(target) + records);
  }
}
