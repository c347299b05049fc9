import { KrabkaError } from "@krabka/core";
import type { RdKafkaConfig } from "./native-binding.js";

/** Global and topic settings of one native client. */
export interface ClientSettings {
  readonly global: RdKafkaConfig;
  readonly topic: RdKafkaConfig;
}

/** How often a transactional producer writes statistics: how long after a mint its pair is known, at the most. */
const STATISTICS_INTERVAL_MS = 10;
/** The same for consumers: how often the reading thread shows that it lives. */
export const HEARTBEAT_MS = 500;
/** Least pause before a request is repeated: librdkafka's default, named because outcomes are judged by it. */
const RETRY_BACKOFF_MS = 100;

/** What no caller may set, since this package's promises rest on it. */
const OWN = [
  "transactional.id",
  "transaction.timeout.ms",
  "enable.idempotence",
  "group.id",
  "enable.auto.commit",
  "isolation.level",
  "statistics.interval.ms",
  "enable.partition.eof",
  "auto.offset.reset",
];

/**
 * librdkafka postpones its connection to a coordinator that it has not found yet by this backoff; with its default of 100
 * a mint takes 60 ms instead of 10 (measured with librdkafka 2.12).
 */
const COMMON: RdKafkaConfig = {
  "client.id": "krabka",
  "reconnect.backoff.ms": 10,
  "reconnect.backoff.max.ms": 1_000,
};

/**
 * librdkafka's bounds for `socket.timeout.ms`. Its default is a minute: a consumer whose connection went silent would read
 * nothing for so long, and a member that reads nothing can't stand for a role.
 */
const withinBounds = (timeoutMs: number): number => Math.min(300_000, Math.max(10, Math.ceil(timeoutMs)));

/** The settings of every native client of one transport, made from the caller's own. */
export class ClientConfig {
  readonly #base: RdKafkaConfig;
  readonly #requestTimeoutMs: number;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` for settings that are this package's own */
  constructor(brokers: string | RdKafkaConfig, requestTimeoutMs: number) {
    const given = typeof brokers === "string" ? { "bootstrap.servers": brokers } : brokers;
    const clash = OWN.filter((name) => name in given);
    if (clash.length > 0) {
      throw new KrabkaError("INVALID_ARGUMENT", `The transport sets ${clash.join(", ")} by itself; leave it out`);
    }
    if (!given["bootstrap.servers"] && !given["metadata.broker.list"]) {
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `brokers must be a list of host:port or a configuration with bootstrap.servers; got ${JSON.stringify(brokers)}`,
      );
    }
    this.#base = { ...COMMON, "socket.timeout.ms": withinBounds(requestTimeoutMs), ...given };
    this.#requestTimeoutMs = requestTimeoutMs;
  }

  get admin(): RdKafkaConfig {
    return this.#base;
  }

  /** Writes for one role. */
  transactional(role: string, transactionTimeoutMs: number): ClientSettings {
    return {
      global: {
        ...this.#base,
        "transactional.id": role,
        "transaction.timeout.ms": transactionTimeoutMs,
        // librdkafka wants a request's limit inside the transaction's.
        "socket.timeout.ms": Math.max(10, Math.min(this.#requestTimeoutMs, transactionTimeoutMs - 100)),
        "statistics.interval.ms": STATISTICS_INTERVAL_MS,
        // Warnings tell of an InitProducerId that failed; none of them is printed.
        log_level: 6,
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        // Records wait for AddPartitionsToTxn anyway and gather meanwhile.
        "linger.ms": 0,
        "queue.buffering.max.messages": 0,
      },
      topic: { "message.timeout.ms": transactionTimeoutMs },
    };
  }

  /** Writes registrations. */
  ordinary(): ClientSettings {
    return {
      global: { ...this.#base, "enable.idempotence": true, "linger.ms": 0 },
      topic: { "message.timeout.ms": this.#requestTimeoutMs },
    };
  }

  /**
   * Reads without a group: partitions are assigned by hand and offsets never committed. librdkafka wants a name of a group
   * all the same.
   */
  reading(kind: "committed" | "uncommitted"): ClientSettings {
    return {
      global: {
        ...this.#base,
        "group.id": `krabka-${crypto.randomUUID()}`,
        "enable.auto.commit": false,
        "isolation.level": kind === "committed" ? "read_committed" : "read_uncommitted",
        "enable.partition.eof": true,
        "statistics.interval.ms": HEARTBEAT_MS,
        "allow.auto.create.topics": false,
        "topic.metadata.propagation.max.ms": 3_000,
        "fetch.error.backoff.ms": 20,
        // The end of a partition is told by an empty answer, so this is how long it takes to be told.
        "fetch.wait.max.ms": kind === "committed" ? 250 : 3,
      },
      topic: { "auto.offset.reset": "earliest" },
    };
  }
}
