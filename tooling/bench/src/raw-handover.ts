import { Deadline, type ProducerPair, type Role } from "@krabka/core";
import {
  ClusterMap,
  decodeBatches,
  decodeFetch,
  decodeInitProducerId,
  decodeProduce,
  decompress,
  encodeBatch,
  encodeFetch,
  encodeInitProducerId,
  encodeProduce,
  FETCH,
  INIT_PRODUCER_ID,
  openWire,
  PRODUCE,
  systemClock,
  type Wire,
} from "@krabka/transport-kafkajs/raw";
import { logLevel } from "kafkajs";

const TIMEOUT_MS = 10_000;
/** A coordinator that has just started. */
const LOADING = new Set([14, 15, 16]);
const POLL_MS = 5_000;

/** One side of the raw handover: connections of its own, and a pair once it has minted. */
class Side {
  readonly wire: Wire;
  readonly #map: ClusterMap;
  readonly #role: Role;
  readonly #topic: string;
  #pair: ProducerPair = { producerId: -1n, epoch: -1 };
  #sequence = 0;

  constructor(brokers: string[], role: Role, topic: string) {
    this.wire = openWire({ brokers, logLevel: logLevel.NOTHING }, TIMEOUT_MS);
    this.#map = new ClusterMap(this.wire, systemClock, TIMEOUT_MS);
    this.#role = role;
    this.#topic = topic;
  }

  /** The broker that leads the one partition and coordinates the role; the raw handover runs on a single broker. */
  prepare(): Promise<number> {
    return this.#map.coordinatorOf(this.#role, new Deadline(systemClock, undefined, TIMEOUT_MS));
  }

  async mint(nodeId: number): Promise<void> {
    const ask = { transactionalId: this.#role, transactionTimeoutMs: TIMEOUT_MS, own: undefined };
    const encode = () => encodeInitProducerId(ask);
    const request = { api: INIT_PRODUCER_ID, encode, timeoutMs: TIMEOUT_MS };
    let answer = decodeInitProducerId(await this.wire.request(nodeId, "write", request));
    while (LOADING.has(answer.code)) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      answer = decodeInitProducerId(await this.wire.request(nodeId, "write", request));
    }
    if (answer.code !== 0) throw new Error(`InitProducerId was answered with code ${answer.code}`);
    this.#pair = answer.pair;
    this.#sequence = 0;
  }

  async append(nodeId: number, value: Uint8Array): Promise<bigint> {
    const record = { key: Buffer.from("lease"), value, headers: [], timestampMs: Date.now() };
    const batch = encodeBatch([record], { ...this.#pair, baseSequence: this.#sequence, transactional: false });
    this.#sequence += 1;
    const encode = () => encodeProduce(null, TIMEOUT_MS, [{ topic: this.#topic, partition: 0, batch }]);
    const [answer] = decodeProduce(
      await this.wire.request(nodeId, "write", { api: PRODUCE, encode, timeoutMs: TIMEOUT_MS }),
    );
    if (answer?.code !== 0) throw new Error(`Produce was answered with code ${answer?.code}`);
    return answer.baseOffset;
  }

  /** Resolves when the partition has something at `offset`. */
  async seen(nodeId: number, offset: bigint): Promise<void> {
    const partitions = [{ partition: 0, leaderEpoch: -1, fetchOffset: offset, lastFetchedEpoch: -1 }];
    const ask = { topic: this.#topic, partitions, maxWaitMs: POLL_MS, committedOnly: false, maxBytes: 65_536 };
    const encode = () => encodeFetch(ask);
    for (;;) {
      const request = { api: FETCH, encode, timeoutMs: TIMEOUT_MS };
      const { partitions: fetched } = decodeFetch(await this.wire.request(nodeId, "poll", request));
      const batches = await decodeBatches(fetched[0]?.records ?? Buffer.alloc(0), decompress);
      if (batches.length > 0) return;
    }
  }
}

/**
 * The floor of a handover: the old leader appends its release, the new one sees it in a long poll, mints, appends its
 * grant. Nothing is decided, checked or confirmed.
 */
export class RawHandover {
  readonly #sides: readonly [Side, Side];
  #nodeId = -1;
  #end = 0n;
  #turn = 0;

  constructor(brokers: string[], role: Role, topic: string) {
    this.#sides = [new Side(brokers, role, topic), new Side(brokers, role, topic)];
  }

  async prepare(): Promise<void> {
    for (const side of this.#sides) this.#nodeId = await side.prepare();
    await this.#sides[0].mint(this.#nodeId);
    this.#end = (await this.#sides[0].append(this.#nodeId, Buffer.from("grant"))) + 1n;
  }

  /** Milliseconds from the release to the acknowledged grant of the other side. */
  async once(): Promise<number> {
    const [leader, standby] = this.#turn % 2 === 0 ? this.#sides : [this.#sides[1], this.#sides[0]];
    this.#turn += 1;
    const released = standby.seen(this.#nodeId, this.#end);
    // The poll must be at the broker before the release is.
    await new Promise((resolve) => setTimeout(resolve, 5));
    const startedAtMs = performance.now();
    const release = leader.append(this.#nodeId, Buffer.from("release"));
    await released;
    await standby.mint(this.#nodeId);
    this.#end = (await standby.append(this.#nodeId, Buffer.from("grant"))) + 1n;
    await release;
    return performance.now() - startedAtMs;
  }

  async close(): Promise<void> {
    for (const side of this.#sides) await side.wire.close();
  }
}
