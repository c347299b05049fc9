import { Deadline } from "@krabka/core";
import type { ClientSettings } from "./client-config.js";
import { ConnectionTrouble } from "./connection-trouble.js";
import { ConsumerInstance, type ConsumerListener } from "./consumer-instance.js";
import type { NativeError, NativeMetadata } from "./native-binding.js";
import { systemClock } from "./system-clock.js";

const START_LIMIT_MS = 10_000;
const START_AGAIN_MS = 1_000;

/**
 * A consumer that goes on where it was when its native one stops reading.
 *
 * node-rdkafka's reading thread ends by itself at the first error that it does not know, for instance when the coordinator
 * of a group that nobody uses refuses it, and tells nobody.
 */
export class SteadyConsumer {
  readonly trouble = new ConnectionTrouble();
  readonly #settings: ClientSettings;
  readonly #topic: string;
  readonly #listener: ConsumerListener;
  /** The next offset of each assigned partition. */
  readonly #positions = new Map<number, bigint>();
  readonly #ending = new Set<Promise<void>>();
  #current: ConsumerInstance;
  #closed = false;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` where librdkafka refuses a setting */
  constructor(settings: ClientSettings, topic: string, listener: ConsumerListener) {
    this.#settings = settings;
    this.#topic = topic;
    this.#listener = listener;
    this.#current = this.#make();
  }

  start(deadline: Deadline): Promise<void> {
    return this.#current.start(deadline);
  }

  /** Reads a partition from an offset on. The client must have started. */
  assign(partition: number, offset: bigint): void {
    if (this.#positions.has(partition)) return;
    this.#positions.set(partition, offset);
    this.#current.assign(partition, offset);
  }

  unassign(partition: number): void {
    if (this.#positions.delete(partition)) this.#current.unassign(partition);
  }

  metadata(topic: string, deadline: Deadline): Promise<NativeMetadata> {
    return this.#current.metadata(topic, deadline);
  }

  bounds(topic: string, partition: number, deadline: Deadline): Promise<{ begin: bigint; end: bigint }> {
    return this.#current.bounds(topic, partition, deadline);
  }

  refusalOf(topic: string, deadline: Deadline): Promise<NativeError | undefined> {
    return this.#current.refusalOf(topic, deadline);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#end(this.#current);
    await Promise.all(this.#ending);
  }

  #make(): ConsumerInstance {
    return new ConsumerInstance(this.#settings, this.#topic, this.trouble, {
      onMessage: (message) => {
        if (!this.#positions.has(message.partition)) return;
        this.#positions.set(message.partition, BigInt(message.offset) + 1n);
        this.#listener.onMessage(message);
      },
      onEnd: (eof) => {
        if (!this.#positions.has(eof.partition)) return;
        this.#positions.set(eof.partition, BigInt(eof.offset));
        this.#listener.onEnd(eof);
      },
      onProblem: (code, text) => this.#listener.onProblem(code, text),
      onStopped: (consumer) => void this.#replace(consumer),
    });
  }

  async #replace(stopped: ConsumerInstance): Promise<void> {
    if (this.#closed || stopped !== this.#current) return;
    const next = this.#make();
    this.#current = next;
    // Its end tells why it stopped.
    await this.#end(stopped);
    while (!this.#closed && next === this.#current) {
      try {
        await next.start(new Deadline(systemClock, undefined, START_LIMIT_MS));
        for (const [partition, offset] of this.#positions) next.assign(partition, offset);
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, START_AGAIN_MS));
      }
    }
  }

  #end(consumer: ConsumerInstance): Promise<void> {
    const ended = consumer.close().finally(() => this.#ending.delete(ended));
    this.#ending.add(ended);
    return ended;
  }
}
