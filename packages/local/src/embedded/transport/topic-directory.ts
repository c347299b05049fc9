import { type Deadline, KrabkaError } from "@krabka/core";
import type { BrokerClient } from "../link/broker-client.js";
import { ask } from "./answer.js";
import { refusalError } from "./refusals.js";

/** How many partitions topics have. The counts never change, so each is asked for once. */
export class TopicDirectory {
  readonly #client: BrokerClient;
  readonly #autoCreatePartitions: number;
  readonly #partitions = new Map<string, number>();

  /** @param autoCreatePartitions Of a topic that is missing; with 0 that is an error. */
  constructor(client: BrokerClient, autoCreatePartitions: number) {
    this.#client = client;
    this.#autoCreatePartitions = autoCreatePartitions;
  }

  /** @throws {KrabkaError} `TOPIC_MISCONFIGURED` when it exists and is another one; `INVALID_ARGUMENT` */
  async create(topic: string, partitions: number, compacted: boolean, limit: Deadline): Promise<void> {
    if (!Number.isInteger(partitions) || partitions < 1) {
      throw new KrabkaError("INVALID_ARGUMENT", `A topic's partitions must be an integer >= 1; got ${partitions}`);
    }
    const answer = await ask(this.#client, { kind: "create-topic", topic, partitions, compacted }, limit);
    if (answer.status === "refused") throw refusalError(answer);
  }

  /** @throws {KrabkaError} `UNKNOWN_TOPIC` */
  async partitionsOf(topic: string, limit: Deadline): Promise<number> {
    const known = this.#partitions.get(topic);
    if (known !== undefined) {
      limit.throwIfEnded();
      return known;
    }
    const result = await this.#client.query({ kind: "topic", topic }, limit);
    if (result.kind === "topic") {
      this.#partitions.set(topic, result.partitions);
      return result.partitions;
    }
    if (result.kind !== "unknown-topic") throw new KrabkaError("UNREACHABLE", `The broker answered ${result.kind}`);
    if (this.#autoCreatePartitions === 0) throw new KrabkaError("UNKNOWN_TOPIC", result.message);
    await this.create(topic, this.#autoCreatePartitions, false, limit);
    return this.#autoCreatePartitions;
  }
}
