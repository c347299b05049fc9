const ID_BLOCK = 1_000n;

interface Broker {
  alive: boolean;
  nextId: bigint;
  lastId: bigint;
}

/** Java's `String.hashCode` without its sign, by which Kafka places a transactional id. */
export const javaHash = (text: string): number => {
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
  return Math.abs(hash);
};

/** Which brokers are up, and the producer ids that each hands out from its own block of 1,000. */
export class Brokers {
  readonly #brokers: readonly Broker[];
  #nextBlock: bigint;

  constructor(count: number) {
    this.#brokers = Array.from({ length: count }, (_, index) => ({
      alive: true,
      nextId: BigInt(index) * ID_BLOCK,
      lastId: BigInt(index) * ID_BLOCK + ID_BLOCK - 1n,
    }));
    this.#nextBlock = BigInt(count) * ID_BLOCK;
  }

  get count(): number {
    return this.#brokers.length;
  }

  get live(): readonly number[] {
    return this.#brokers.flatMap((broker, id) => (broker.alive ? [id] : []));
  }

  isLive(id: number): boolean {
    return this.#brokers[id]?.alive === true;
  }

  /** The first broker that is up, counted from `start` around the circle. */
  liveFrom(start: number): number {
    for (let step = 0; step < this.count; step++) {
      const id = (start + step) % this.count;
      if (this.isLive(id)) return id;
    }
    throw new Error("No broker is up");
  }

  /** @throws {Error} unless the broker is up */
  mustBeLive(id: number): number {
    if (!this.isLive(id)) throw new Error(`Broker ${id} is not up; up are ${this.live.join(", ")}`);
    return id;
  }

  stop(id: number): void {
    if (this.live.length === 1) throw new Error(`Broker ${id} is the last one and can't be stopped`);
    this.#at(this.mustBeLive(id)).alive = false;
  }

  /** A broker that comes back takes a fresh block: the rest of its old one is lost (KIP-730). */
  start(id: number): void {
    const broker = this.#at(id);
    if (broker.alive) throw new Error(`Broker ${id} is up already`);
    broker.alive = true;
    this.#takeBlock(broker);
  }

  nextProducerId(id: number): bigint {
    const broker = this.#at(id);
    if (broker.nextId > broker.lastId) this.#takeBlock(broker);
    return broker.nextId++;
  }

  setNextProducerId(id: number, producerId: bigint): void {
    const broker = this.#at(id);
    broker.nextId = producerId;
    broker.lastId = (producerId / ID_BLOCK) * ID_BLOCK + ID_BLOCK - 1n;
  }

  #takeBlock(broker: Broker): void {
    broker.nextId = this.#nextBlock;
    broker.lastId = this.#nextBlock + ID_BLOCK - 1n;
    this.#nextBlock += ID_BLOCK;
  }

  #at(id: number): Broker {
    const broker = this.#brokers[id];
    if (broker === undefined) throw new Error(`Brokers are 0 to ${this.count - 1}; got ${id}`);
    return broker;
  }
}
