import type { Clock, Role, Timer } from "@krabka/core";
import type { ClientConfig } from "./client-config.js";
import { ProducerInstance } from "./producer-instance.js";

/** How long a connected producer that was not needed is kept. */
const KEEP_MS = 30_000;

interface Kept {
  readonly producer: ProducerInstance;
  readonly timer: Timer;
}

/**
 * Producers that are connected and have not minted.
 *
 * To connect may take longer than the state of a role stays fresh. Then the mint is refused, the role is read again, and
 * the next attempt must not begin with a connection again.
 */
export class ProducerShelf {
  readonly #config: ClientConfig;
  readonly #clock: Clock;
  readonly #onProblem: (role: Role, code: number, text: string) => void;
  readonly #kept = new Map<string, Kept>();
  readonly #ending = new Set<Promise<void>>();
  #closed = false;

  constructor(config: ClientConfig, clock: Clock, onProblem: (role: Role, code: number, text: string) => void) {
    this.#config = config;
    this.#clock = clock;
    this.#onProblem = onProblem;
  }

  /** @throws {KrabkaError} `INVALID_ARGUMENT` where librdkafka refuses the time-out */
  take(role: Role, transactionTimeoutMs: number): ProducerInstance {
    const key = keyOf(role, transactionTimeoutMs);
    const kept = this.#kept.get(key);
    if (kept !== undefined) {
      this.#kept.delete(key);
      kept.timer.cancel();
      return kept.producer;
    }
    const { global, topic } = this.#config.transactional(role, transactionTimeoutMs);
    return new ProducerInstance(global, topic, (code, text) => this.#onProblem(role, code, text));
  }

  put(role: Role, transactionTimeoutMs: number, producer: ProducerInstance): void {
    const key = keyOf(role, transactionTimeoutMs);
    if (this.#closed || this.#kept.has(key)) {
      this.#end(producer);
      return;
    }
    const timer = this.#clock.setTimer(KEEP_MS, () => {
      this.#kept.delete(key);
      this.#end(producer);
    });
    this.#kept.set(key, { producer, timer });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { producer, timer } of this.#kept.values()) {
      timer.cancel();
      this.#end(producer);
    }
    this.#kept.clear();
    await Promise.all(this.#ending);
  }

  #end(producer: ProducerInstance): void {
    const closed = producer.close().finally(() => this.#ending.delete(closed));
    this.#ending.add(closed);
  }
}

const keyOf = (role: Role, transactionTimeoutMs: number): string => `${transactionTimeoutMs} ${role}`;
