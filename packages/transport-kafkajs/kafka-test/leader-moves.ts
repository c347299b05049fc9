import { setTimeout as sleep } from "node:timers/promises";
import type { Role, TopicPartition } from "@krabka/core";
import type { Admin, PartitionMetadata } from "kafkajs";
import type { ClusterMap } from "../src/cluster-map.js";
import type { Api } from "../src/wire/api.js";
import { ByteWriter } from "../src/wire/byte-writer.js";

const ELECT_LEADERS: Api = { name: "ElectLeaders", key: 43, version: 1, flexible: false };
const PREFERRED = 0;
const TRANSACTIONS = "__transaction_state";

/** Moves partitions between brokers that stay up, as an operator does: another first replica, then its election. */
export class LeaderMoves {
  readonly #admin: Admin;
  readonly #map: ClusterMap;

  constructor(admin: Admin, map: ClusterMap) {
    this.#admin = admin;
    this.#map = map;
  }

  /** Resolves once a broker says that another one leads; the others may learn it a moment later. */
  async move(target: TopicPartition): Promise<void> {
    const { leader, isr, replicas } = await this.#look(target);
    const heir = isr.find((id) => id !== leader);
    if (heir === undefined) throw new Error(`No other replica of ${target.topic}-${target.partition} is in sync`);
    const order = [heir, ...replicas.filter((id) => id !== heir)];
    const partitionAssignment = [{ partition: target.partition, replicas: order }];
    await this.#admin.alterPartitionReassignments({ topics: [{ topic: target.topic, partitionAssignment }] });
    for (let attempt = 0; attempt < 200; attempt++) {
      await this.#electPreferred(target, leader);
      if ((await this.#look(target)).leader === heir) return;
      await sleep(20);
    }
    throw new Error(`Broker ${heir} was not elected to lead ${target.topic}-${target.partition}`);
  }

  /** The coordinator of a role is the leader of its partition of the transaction log. */
  async moveCoordinator(role: Role): Promise<void> {
    const count = (await this.#partitions(TRANSACTIONS)).length;
    await this.move({ topic: TRANSACTIONS, partition: Math.abs(javaHash(role)) % count });
  }

  async #look({ topic, partition }: TopicPartition): Promise<PartitionMetadata> {
    const found = (await this.#partitions(topic)).find(({ partitionId }) => partitionId === partition);
    if (found === undefined) throw new Error(`There is no ${topic}-${partition}`);
    return found;
  }

  async #partitions(topic: string): Promise<readonly PartitionMetadata[]> {
    const { topics } = await this.#admin.fetchTopicMetadata({ topics: [topic] });
    return topics[0]?.partitions ?? [];
  }

  /** Any broker takes the request to the controller. Whether the election took place, the metadata tells. */
  async #electPreferred({ topic, partition }: TopicPartition, nodeId: number): Promise<void> {
    const encode = () => {
      const to = new ByteWriter().int8(PREFERRED);
      to.array([topic], (name) => to.string(name).array([partition], (index) => to.int32(index)));
      return to.int32(1_000).bytes;
    };
    await this.#map.metadata("", this.#map.deadline(undefined));
    await this.#map.ask(nodeId, "write", { api: ELECT_LEADERS, encode }, this.#map.deadline(undefined));
  }
}

/** `String.hashCode` of Java, by which brokers place a transactional id. */
const javaHash = (text: string): number => {
  let hash = 0;
  for (let index = 0; index < text.length; index++) hash = (Math.imul(hash, 31) + text.charCodeAt(index)) | 0;
  return hash;
};
