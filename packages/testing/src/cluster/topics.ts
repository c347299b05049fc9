import type { Clock } from "@krabka/core";
import { type Brokers, javaHash } from "./brokers.js";
import { type LogLimits, PartitionLog } from "./partition-log.js";
import type { FullTopicSettings, PartitionRef, TopicSettings } from "./protocol.js";

interface Partition {
  readonly log: PartitionLog;
  leader: number;
}

export interface Topic {
  readonly settings: FullTopicSettings;
  readonly partitions: readonly Partition[];
}

const DAY_MS = 86_400_000;

/** The topics of a cluster and who leads their partitions. */
export class Topics {
  readonly #clock: Clock;
  readonly #brokers: Brokers;
  readonly #limits: LogLimits;
  readonly #topics = new Map<string, Topic>();

  constructor(clock: Clock, brokers: Brokers, limits: LogLimits) {
    this.#clock = clock;
    this.#brokers = brokers;
    this.#limits = limits;
  }

  create(name: string, settings: TopicSettings): void {
    if (this.#topics.has(name)) throw new Error(`Topic ${JSON.stringify(name)} exists already`);
    const full: FullTopicSettings = {
      partitions: settings.partitions,
      replicationFactor: settings.replicationFactor ?? Math.min(3, this.#brokers.count),
      cleanupPolicy: settings.cleanupPolicy ?? "delete",
      timestampType: settings.timestampType ?? "CreateTime",
      deleteRetentionMs: settings.deleteRetentionMs ?? DAY_MS,
    };
    const first = javaHash(name);
    this.#topics.set(name, {
      settings: full,
      partitions: Array.from({ length: full.partitions }, (_, index) => ({
        log: new PartitionLog(full, this.#clock, this.#limits),
        leader: this.#brokers.liveFrom(first + index),
      })),
    });
  }

  find(name: string): Topic | undefined {
    return this.#topics.get(name);
  }

  findPartition({ topic, partition }: PartitionRef): Partition | undefined {
    return this.#topics.get(topic)?.partitions[partition];
  }

  /** @throws {Error} when there is none */
  partition(ref: PartitionRef): Partition {
    const found = this.findPartition(ref);
    if (found !== undefined) return found;
    throw new Error(`There is no partition ${ref.partition} of topic ${JSON.stringify(ref.topic)}`);
  }

  /** Gives what a broker leads to the next one that is up. */
  leave(broker: number): void {
    for (const { partitions } of this.#topics.values()) {
      for (const partition of partitions) {
        if (partition.leader === broker) partition.leader = this.#brokers.liveFrom(broker + 1);
      }
    }
  }
}
