import type { ProducerPair } from "@krabka/core";
import type { Answer, ApiName, FakeCall } from "@krabka/testing";

/** The pairs of each role in the order in which the coordinator gave them out. */
export class Mints {
  readonly #order = new Map<string, Map<string, number>>();
  #count = 0;

  /** All of them, of members and strangers. */
  get count(): number {
    return this.#count;
  }

  readonly onExecuted = (call: FakeCall, answer: Answer<ApiName>): void => {
    if (call.api !== "InitProducerId" || !answer.ok) return;
    const { transactionalId } = call.ask as FakeCall<"InitProducerId">["ask"];
    this.add(transactionalId, answer as Answer<"InitProducerId"> & ProducerPair);
  };

  add(role: string, { producerId, epoch }: ProducerPair): void {
    const order = this.#order.get(role) ?? new Map<string, number>();
    this.#order.set(role, order);
    const name = `${producerId}:${epoch}`;
    // A conditional mint that is repeated after a lost answer gives the same pair again.
    if (order.has(name)) return;
    this.#count += 1;
    order.set(name, this.#count);
  }

  /** Negative when `a` was minted before `b`. @throws {Error} for a pair that nobody minted */
  compare(role: string, a: ProducerPair, b: ProducerPair): number {
    return this.at(role, a) - this.at(role, b);
  }

  at(role: string, { producerId, epoch }: ProducerPair): number {
    const at = this.#order.get(role)?.get(`${producerId}:${epoch}`);
    if (at === undefined) throw new Error(`role ${role}: the pair ${producerId}:${epoch} was never minted`);
    return at;
  }
}
