import {
  type Clock,
  type Deadline,
  KrabkaError,
  type RawRecord,
  type RecordPosition,
  type TopicPartition,
} from "@krabka/core";
import type { ClientConfig } from "./client-config.js";
import type { NativeError } from "./native-binding.js";
import { CLIENT_CLOSED, codeOf, errorOf } from "./native-errors.js";
import { type Delivery, ProducerInstance } from "./producer-instance.js";
import { messageOf } from "./write-plan.js";

/** `_PURGE_QUEUE`, `_PURGE_INFLIGHT`. */
const PURGED: ReadonlySet<number> = new Set([-152, -151]);

/** Appends with the rights of any producer, through one native producer for the whole transport. */
export class OrdinaryWriter {
  readonly #config: ClientConfig;
  readonly #clock: Clock;
  #producer: ProducerInstance | undefined;
  #closed = false;

  constructor(config: ClientConfig, clock: Clock) {
    this.#config = config;
    this.#clock = clock;
  }

  /** @throws {KrabkaError} as `Transport.appendUnfenced` */
  async append(
    target: TopicPartition,
    records: readonly RawRecord[],
    deadline: Deadline,
  ): Promise<readonly RecordPosition[]> {
    if (this.#closed) throw new KrabkaError("CLOSED", "The transport was closed");
    const { topic, partition } = target;
    const messages = records.map((record) => messageOf(record, topic, partition, this.#clock.wallMs()));
    const producer = this.#current();
    await producer.connect(deadline);
    const deliveries = await producer.whileBusy(() =>
      deadline.race(
        Promise.all(
          messages.map(
            (message) =>
              new Promise<Delivery>((resolve) => {
                const code = producer.produce(message, resolve);
                if (code !== 0) resolve({ code });
              }),
          ),
        ),
      ),
    );
    const { refusal } = producer.trouble;
    return deliveries.map((delivery) => {
      if ("offset" in delivery) return { topic, partition, offset: delivery.offset };
      // A producer of this kind that failed for good fails every later record as well.
      if (this.#producer === producer && delivery.code < 0 && delivery.code !== CLIENT_CLOSED) this.#discard(producer);
      // Where the user may write no topic at all, the producer fails before it sends, and its records are only thrown away.
      const code =
        PURGED.has(delivery.code) && refusal !== undefined ? codeOf(refusal.cause as NativeError) : delivery.code;
      const name = JSON.stringify(topic);
      throw errorOf({ message: "", code }, `Appending to topic ${name}`, `Write on topic ${name}`);
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#producer?.close();
    await Promise.all(this.#discarded);
  }

  readonly #discarded = new Set<Promise<void>>();

  #current(): ProducerInstance {
    if (this.#producer === undefined) {
      const { global, topic } = this.#config.ordinary();
      this.#producer = new ProducerInstance(global, topic);
    }
    return this.#producer;
  }

  #discard(producer: ProducerInstance): void {
    this.#producer = undefined;
    const closed = producer.close().finally(() => this.#discarded.delete(closed));
    this.#discarded.add(closed);
  }
}
