import type { TopicPartition } from "@krabka/core";
import { type ByteReader, ByteWriter } from "../../state/binary.js";
import { PartitionLog, type Retention } from "./partition-log.js";
import { type BrokerAnswer, refuse } from "./request.js";
import type { Section } from "./state-snapshot.js";

export interface Topic {
  readonly compacted: boolean;
  readonly partitions: readonly PartitionLog[];
}

const MAX_PARTITIONS = 10_000;
/** Kafka's own limit for names of topics. */
const TOPIC_NAME = /^[a-zA-Z0-9._-]{1,249}$/;

/** The topics of a broker with their partitions. */
export class Topics {
  readonly #topics = new Map<string, Topic>();

  get(name: string): Topic | undefined {
    return this.#topics.get(name);
  }

  partition({ topic, partition }: TopicPartition): PartitionLog | undefined {
    return this.#topics.get(topic)?.partitions[partition];
  }

  /** Every partition of every topic. */
  partitions(): readonly PartitionLog[] {
    return [...this.#topics.values()].flatMap(({ partitions }) => partitions);
  }

  /** Bytes of all records. */
  get bytes(): number {
    return this.partitions().reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** @returns why there can't be such a topic, or undefined once there is */
  create(name: string, count: number, compacted: boolean): BrokerAnswer | undefined {
    const found = this.#topics.get(name);
    if (found !== undefined) {
      if (found.compacted === compacted && found.partitions.length === count) return undefined;
      return refuse(
        "topic-differs",
        `Topic ${JSON.stringify(name)} ${describeTopic(found.compacted, found.partitions.length)}; wanted is one that ${describeTopic(compacted, count)}`,
      );
    }
    if (!TOPIC_NAME.test(name) || name === "." || name === "..") {
      const wanted = "1 to 249 of the letters a-z A-Z 0-9 . _ -";
      return refuse("invalid", `A topic's name must be ${wanted}; got ${JSON.stringify(name)}`);
    }
    if (count < 1 || count > MAX_PARTITIONS) {
      return refuse("invalid", `A topic has 1 to ${MAX_PARTITIONS} partitions; got ${count}`);
    }
    this.#topics.set(name, {
      compacted,
      partitions: Array.from({ length: count }, () => new PartitionLog(compacted)),
    });
    return undefined;
  }

  /** Drops what the retention no longer covers in one partition. */
  clean(log: PartitionLog, retention: Retention & { readonly bytesInAll: number }, nowMs: number): void {
    log.clean(retention, nowMs);
    let memoryBytes = this.partitions().reduce((sum, partition) => sum + partition.memoryBytes, 0);
    while (memoryBytes > retention.bytesInAll) {
      const [largest] = this.partitions()
        .filter(({ compacted }) => !compacted)
        .sort((a, b) => b.memoryBytes - a.memoryBytes);
      const before = largest?.memoryBytes ?? 0;
      if (largest?.dropOldest() !== true) return;
      memoryBytes -= before - largest.memoryBytes;
    }
  }

  snapshot(): readonly Section[] {
    const topics = [...this.#topics].flatMap(([name, { compacted, partitions }]) => [
      new ByteWriter()
        .string(name)
        .uint8(compacted ? 1 : 0)
        .uint32(partitions.length)
        .finish(),
      ...partitions.flatMap((log) => log.snapshot()),
    ]);
    return [new ByteWriter().uint32(this.#topics.size).finish(), ...topics];
  }

  /** @throws {Error} for bytes that are no topics */
  static decode(reader: ByteReader): Topics {
    const topics = new Topics();
    for (let left = reader.uint32(); left > 0; left--) {
      const name = reader.string();
      const compacted = reader.uint8() === 1;
      topics.#topics.set(name, { compacted, partitions: reader.list((from) => PartitionLog.decode(from, compacted)) });
    }
    return topics;
  }
}

const describeTopic = (compacted: boolean, partitions: number): string =>
  `is ${compacted ? "compacted" : "deleted by age"} and has ${partitions} partitions`;
