import { type Deadline, KrabkaError } from "@krabka/core";
import { errorOf } from "./native-errors.js";
import type { SteadyConsumer } from "./steady-consumer.js";

/** How long a count is used: partitions are added rarely, and never taken away. */
const COUNT_MAX_AGE_MS = 300_000;
/** How long a topic may seem absent, since a broker can lag behind its creation. */
const ABSENT_FOR_MS = 1_000;
/** How long the answer why it seems so may take. */
const REFUSAL_MS = 1_000;

/** Partition counts. */
export class TopicDirectory {
  readonly #consumer: SteadyConsumer;
  readonly #counts = new Map<string, { readonly count: number; readonly readAtMs: number }>();

  constructor(consumer: SteadyConsumer) {
    this.#consumer = consumer;
  }

  /** @throws {KrabkaError} `UNKNOWN_TOPIC`, `UNAUTHORIZED`, `TIMEOUT`, `ABORTED`, `CLOSED` */
  async partitionsOf(topic: string, deadline: Deadline): Promise<number> {
    const known = this.#counts.get(topic);
    const nowMs = deadline.clock.monotonicMs();
    if (known !== undefined && nowMs - known.readAtMs < COUNT_MAX_AGE_MS) return known.count;
    const count = await this.#ask(topic, deadline);
    this.#counts.set(topic, { count, readAtMs: nowMs });
    return count;
  }

  async #ask(topic: string, deadline: Deadline): Promise<number> {
    const startedAtMs = deadline.clock.monotonicMs();
    for (;;) {
      const { topics } = await this.#consumer.metadata(topic, deadline);
      const count = topics.find(({ name }) => name === topic)?.partitions.length ?? 0;
      if (count > 0) return count;
      if (deadline.clock.monotonicMs() - startedAtMs > ABSENT_FOR_MS) throw await this.#whyNone(topic, deadline);
      await deadline.pause(50);
    }
  }

  /** node-rdkafka leaves out why a topic has no partitions; another question is answered with a code. */
  async #whyNone(topic: string, deadline: Deadline): Promise<KrabkaError> {
    const name = JSON.stringify(topic);
    const absent = new KrabkaError("UNKNOWN_TOPIC", `Topic ${name} does not exist`);
    try {
      const refusal = await this.#consumer.refusalOf(topic, deadline.within(REFUSAL_MS));
      if (refusal === undefined) return absent;
      const error = errorOf(refusal, `Looking topic ${name} up`, `Describe on topic ${name}`);
      return error.code === "UNAUTHORIZED" ? error : absent;
    } catch {
      return deadline.ended ?? absent;
    }
  }
}
