import type { ProducerPair } from "@krabka/core";

interface RawBroker {
  readonly source: string;
  readonly disconnects: number;
  readonly req_timeouts: number;
  readonly req: Readonly<Record<string, number | undefined>>;
}

interface RawStatistics {
  readonly age: number;
  readonly brokers: Readonly<Record<string, RawBroker>>;
  readonly eos?: { readonly idemp_state: string; readonly txn_state: string; readonly producer_epoch: number };
}

/** Statistics of one producer as librdkafka writes them (STATISTICS.md), read for what concerns transactions. */
export class Statistics {
  /** How old the client was when they were written. */
  readonly clientAgeMs: number;
  /** The pair that this producer holds; undefined before it was given one. */
  readonly pair: ProducerPair | undefined;
  readonly idempotenceState: string;
  readonly transactionState: string;
  readonly #brokers: readonly RawBroker[];

  private constructor(raw: RawStatistics, producerId: bigint) {
    this.clientAgeMs = raw.age / 1_000;
    this.idempotenceState = raw.eos?.idemp_state ?? "";
    this.transactionState = raw.eos?.txn_state ?? "";
    const epoch = raw.eos?.producer_epoch ?? -1;
    this.pair = producerId >= 0n && epoch >= 0 ? { producerId, epoch } : undefined;
    this.#brokers = Object.values(raw.brokers);
  }

  static parse(text: string): Statistics {
    // The id is an int64, which JSON.parse would round.
    const [, id] = /"producer_id":\s*(-?\d+)/.exec(text) ?? [];
    return new Statistics(JSON.parse(text) as RawStatistics, BigInt(id ?? -1));
  }

  /** How many requests of this kind were sent, repetitions included. */
  sent(request: "InitProducerId" | "EndTxn"): number {
    return this.#brokers.reduce((sum, broker) => sum + (broker.req[request] ?? 0), 0);
  }

  /** How often the coordinator's connection ended, or an answer of it did not come in time. */
  get coordinatorTroubles(): number {
    return this.#brokers
      .filter(({ source }) => source === "logical")
      .reduce((sum, broker) => sum + broker.disconnects + broker.req_timeouts, 0);
  }
}
