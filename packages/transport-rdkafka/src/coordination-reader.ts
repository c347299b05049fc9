import {
  type CallOptions,
  type Clock,
  Deadline,
  type FeedListener,
  KrabkaError,
  type Role,
  type RoleFeed,
} from "@krabka/core";
import type { ClientConfig } from "./client-config.js";
import { HAND_OVER_MS } from "./consumer-instance.js";
import { errorOf, GROUP_AUTHORIZATION_FAILED } from "./native-errors.js";
import { type Follower, PartitionReader } from "./partition-reader.js";
import { SteadyConsumer } from "./steady-consumer.js";
import { TailProbe } from "./tail-probe.js";

/** librdkafka asks for the coordinator of the group that it insists on, and stops reading when that is refused. */
const GROUP_RIGHT = 'Describe on groups with the prefix "krabka-"';
/** librdkafka's name for the first offset that there is. */
const BEGINNING = -2n;
/** How long a topic may seem absent. */
const ABSENT_FOR_MS = 2_000;
const TROUBLE_EVERY_MS = 1_000;

export interface ReaderOptions {
  readonly topic: string;
  readonly clock: Clock;
  readonly requestTimeoutMs: number;
}

/** Reads the coordination topic for all roles through one native consumer, and looks at its end through another. */
export class CoordinationReader {
  /** Reads committed records only. Also asked for topics and their partitions, since a producer might create them. */
  readonly consumer: SteadyConsumer;
  readonly #probe: TailProbe;
  readonly #options: ReaderOptions;
  readonly #readers = new Map<number, PartitionReader>();
  /** Partitions whose last reader left, with the instant from which nothing comes in for it any more. */
  readonly #quietFromMs = new Map<number, number>();
  readonly #assigned = new WeakSet<PartitionReader>();
  #closed = false;
  #lookingForTopic = false;
  #troubleToldAtMs = Number.NEGATIVE_INFINITY;

  constructor(config: ClientConfig, options: ReaderOptions) {
    this.#options = options;
    this.#probe = new TailProbe(config.reading("uncommitted"), options.topic);
    this.consumer = new SteadyConsumer(config.reading("committed"), options.topic, {
      onMessage: (message) => this.#assignedReader(message.partition)?.take(message),
      onEnd: ({ partition, offset }) => this.#assignedReader(partition)?.reached(BigInt(offset)),
      onProblem: (code, text) => this.#problem(this.#errorOf(code, text)),
    });
  }

  follow(role: Role, partition: number, listener: FeedListener): RoleFeed {
    let reader = this.#readers.get(partition);
    if (reader === undefined && !this.#closed) {
      reader = new PartitionReader(partition, this.#probe);
      this.#readers.set(partition, reader);
      void this.#assign(reader);
    }
    const follower: Follower = { role, listener, attached: false };
    reader?.add(follower);
    return this.#feed(reader, follower);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const closed = new KrabkaError("CLOSED", "The transport was closed");
    for (const reader of this.#readers.values()) reader.end(closed, false);
    this.#readers.clear();
    await Promise.all([this.consumer.close(), this.#probe.close()]);
  }

  #assignedReader(partition: number): PartitionReader | undefined {
    const reader = this.#readers.get(partition);
    return reader !== undefined && this.#assigned.has(reader) ? reader : undefined;
  }

  #errorOf(code: number, message: string): KrabkaError {
    const topic = JSON.stringify(this.#options.topic);
    const right = code === GROUP_AUTHORIZATION_FAILED ? GROUP_RIGHT : `Read on topic ${topic}`;
    return errorOf({ message, code }, `Reading topic ${topic}`, right);
  }

  #feed(reader: PartitionReader | undefined, follower: Follower): RoleFeed {
    let open = reader !== undefined;
    return {
      sync: async (options?: CallOptions) => {
        const deadline = new Deadline(this.#options.clock, options, this.#options.requestTimeoutMs);
        const closed = (): KrabkaError => new KrabkaError("CLOSED", "The feed was closed", { role: follower.role });
        if (!open || reader === undefined) throw closed();
        if (reader.ended !== undefined) throw reader.ended;
        deadline.throwIfEnded();
        try {
          return await this.#sync(reader, follower, deadline);
        } catch (error) {
          throw open ? (reader.ended ?? error) : closed();
        }
      },
      close: () => {
        if (!open || reader === undefined) return;
        open = false;
        reader.remove(follower);
        if (reader.isEmpty) this.#drop(reader);
      },
    };
  }

  async #sync(reader: PartitionReader, follower: Follower, deadline: Deadline): Promise<bigint> {
    const startedAtMs = this.#options.clock.monotonicMs();
    for (;;) {
      try {
        return await reader.sync(follower, deadline);
      } catch (error) {
        // A broker can lag behind the creation of the topic.
        const absent = KrabkaError.is(error) && error.code === "UNKNOWN_TOPIC" && reader.ended === undefined;
        if (!absent) throw error;
        if (this.#options.clock.monotonicMs() - startedAtMs > ABSENT_FOR_MS) {
          reader.end(error);
          throw error;
        }
        await deadline.pause(50);
      }
    }
  }

  /** Starts to read; as long as the client can't be made, nothing can be read. */
  async #assign(reader: PartitionReader): Promise<void> {
    try {
      const deadline = new Deadline(this.#options.clock, undefined, this.#options.requestTimeoutMs);
      await this.consumer.start(deadline);
      const quietFromMs = this.#quietFromMs.get(reader.partition) ?? 0;
      await deadline.pause(Math.max(0, quietFromMs - this.#options.clock.monotonicMs()));
      if (this.#readers.get(reader.partition) !== reader) return;
      this.consumer.assign(reader.partition, BEGINNING);
      this.#assigned.add(reader);
    } catch (error) {
      if (this.#closed) return;
      reader.trouble(error as KrabkaError);
      this.#options.clock.setTimer(100, () => {
        if (this.#readers.get(reader.partition) === reader) void this.#assign(reader);
      });
    }
  }

  #drop(reader: PartitionReader): void {
    if (this.#readers.get(reader.partition) !== reader) return;
    this.#readers.delete(reader.partition);
    if (this.#assigned.has(reader)) this.consumer.unassign(reader.partition);
    this.#quietFromMs.set(reader.partition, this.#options.clock.monotonicMs() + HAND_OVER_MS);
    reader.end(new KrabkaError("CLOSED", "The feed was closed"), false);
  }

  #problem(error: KrabkaError): void {
    if (error.code === "UNKNOWN_TOPIC") {
      void this.#lookForTopic(error);
      return;
    }
    const forGood = error.code === "UNAUTHORIZED";
    const nowMs = this.#options.clock.monotonicMs();
    // librdkafka speaks up at every attempt to connect.
    if (!forGood && nowMs - this.#troubleToldAtMs < TROUBLE_EVERY_MS) return;
    this.#troubleToldAtMs = nowMs;
    for (const reader of this.#readers.values()) {
      if (forGood) reader.end(error);
      else reader.trouble(error);
    }
  }

  /**
   * librdkafka repeats what one broker said, which can lag behind the creation of the topic, and reads on by itself once it
   * sees the topic again. Only a topic that stays absent ends reading.
   */
  async #lookForTopic(error: KrabkaError): Promise<void> {
    if (this.#lookingForTopic) return;
    this.#lookingForTopic = true;
    const { topic, clock } = this.#options;
    const deadline = new Deadline(clock, undefined, ABSENT_FOR_MS);
    // Where no broker answers, nothing is known about the topic.
    let absent = false;
    try {
      for (;;) {
        const { topics } = await this.consumer.metadata(topic, deadline);
        absent = !topics.some(({ name, partitions }) => name === topic && partitions.length > 0);
        if (!absent) break;
        await deadline.pause(50);
      }
    } catch {
      // The time is over.
    }
    this.#lookingForTopic = false;
    if (this.#closed) return;
    const passing = new KrabkaError("UNREACHABLE", error.message, { cause: error });
    for (const reader of this.#readers.values()) {
      if (absent) reader.end(error);
      else reader.trouble(passing);
    }
  }
}
