import { encodeUtf8, type ProducerPair, type RawRecord } from "@krabka/core";
import type { ApiName, Apis, FakeCluster, PartitionRef } from "@krabka/testing";

/** A program that speaks to the fake brokers in bare requests; each method gives the error code, 0 for none. */
export class RawClient {
  readonly #cluster: FakeCluster;
  readonly id: string;
  pair: ProducerPair = { producerId: -1n, epoch: -1 };

  constructor(cluster: FakeCluster, transactionalId: string) {
    this.#cluster = cluster;
    this.id = transactionalId;
  }

  async init(expected?: ProducerPair): Promise<number> {
    const answer = await this.#send(
      "InitProducerId",
      { transactionalId: this.id, transactionTimeoutMs: 60_000, expected },
      this.#cluster.coordinatorOf(this.id),
    );
    if (!answer.ok) return answer.code;
    this.pair = { producerId: answer.producerId, epoch: answer.epoch };
    return 0;
  }

  /** Mints, also while an earlier transaction is being ended. */
  async mint(): Promise<ProducerPair> {
    while ((await this.init()) !== 0) await new Promise<void>((resolve) => this.#cluster.clock.setTimer(1, resolve));
    return this.pair;
  }

  async add(...partitions: readonly PartitionRef[]): Promise<number> {
    const ask = { transactionalId: this.id, ...this.pair, partitions };
    const answer = await this.#send("AddPartitionsToTxn", ask, this.#cluster.coordinatorOf(this.id));
    return answer.ok ? 0 : answer.code;
  }

  async end(commit: boolean): Promise<number> {
    const ask = { transactionalId: this.id, ...this.pair, commit };
    const answer = await this.#send("EndTxn", ask, this.#cluster.coordinatorOf(this.id));
    return answer.ok ? 0 : answer.code;
  }

  async produce(
    target: PartitionRef,
    sequence: number,
    transactional: boolean,
    values: readonly string[],
    pair: ProducerPair = this.pair,
  ): Promise<{ readonly code: number; readonly offset: bigint }> {
    const records = values.map((value) => ({ key: encodeUtf8("key"), value: encodeUtf8(value), headers: [] }));
    return await this.produceRecords(target, sequence, transactional, records, pair);
  }

  async produceRecords(
    target: PartitionRef,
    sequence: number,
    transactional: boolean,
    raw: readonly RawRecord[],
    pair: ProducerPair = this.pair,
  ): Promise<{ readonly code: number; readonly offset: bigint }> {
    const records = raw.map((record) => ({ ...record, timestampMs: this.#cluster.clock.wallMs() }));
    const batch = { ...pair, records, baseSequence: sequence, transactional };
    const ask = { ...target, transactionalId: transactional ? this.id : undefined, batch };
    const answer = await this.#send("Produce", ask, this.#cluster.leaderOf(target));
    return answer.ok ? { code: 0, offset: answer.baseOffset } : { code: answer.code, offset: -1n };
  }

  #send<A extends ApiName>(api: A, ask: Apis[A]["ask"], broker: number) {
    return this.#cluster.send<A>({ api, ask, broker, clientId: "raw" });
  }
}
