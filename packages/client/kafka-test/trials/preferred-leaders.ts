import { once } from "node:events";
import { connect } from "node:net";
import kafkajs from "kafkajs";
import { until } from "./stage.js";

const ELECT_LEADERS = 43;
const REQUEST_LIMIT_MS = 5_000;

/** Gives partitions another leader: another replica becomes the preferred one, then an election follows. */
export class PreferredLeaders {
  readonly #admin: kafkajs.Admin;
  readonly #bootstrap: string;

  private constructor(bootstrap: string, admin: kafkajs.Admin) {
    this.#bootstrap = bootstrap;
    this.#admin = admin;
  }

  static async of(bootstrap: string): Promise<PreferredLeaders> {
    const config = { brokers: bootstrap.split(","), clientId: "mover", logLevel: kafkajs.logLevel.NOTHING };
    const admin = new kafkajs.Kafka(config).admin();
    await admin.connect();
    return new PreferredLeaders(bootstrap, admin);
  }

  async leaderOf(topic: string, partition: number): Promise<number> {
    return (await this.#partition(topic, partition)).leader;
  }

  /** Resolves when another broker leads the partition. */
  async move(topic: string, partition: number): Promise<void> {
    const { leader, replicas } = await this.#partition(topic, partition);
    const others = replicas.filter((id) => id !== leader);
    if (Math.random() < 0.5) others.reverse();
    await this.#admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition, replicas: [...others, leader] }] }],
    });
    await until(`partition ${partition} of ${topic} to have another leader`, async () => {
      await this.#elect(topic, partition);
      return (await this.leaderOf(topic, partition)) !== leader;
    });
  }

  close(): Promise<void> {
    return this.#admin.disconnect();
  }

  async #partition(topic: string, partition: number): Promise<kafkajs.PartitionMetadata> {
    const { topics } = await this.#admin.fetchTopicMetadata({ topics: [topic] });
    const found = topics[0]?.partitions.find(({ partitionId }) => partitionId === partition);
    if (found === undefined) throw new Error(`Partition ${partition} of ${topic} is unknown`);
    return found;
  }

  /** ElectLeaders, version 0, which kafkajs does not have. Whether it worked is seen in the metadata. */
  async #elect(topic: string, partition: number): Promise<void> {
    const [host, port] = (this.#bootstrap.split(",")[0] as string).split(":") as [string, string];
    const signal = AbortSignal.timeout(REQUEST_LIMIT_MS);
    const socket = connect({ host, port: Number(port), signal });
    try {
      await once(socket, "connect", { signal });
      const body = [int16(ELECT_LEADERS), int16(0), int32(1), string("mover")];
      body.push(int32(1), string(topic), int32(1), int32(partition), int32(REQUEST_LIMIT_MS));
      const request = Buffer.concat(body);
      socket.write(Buffer.concat([int32(request.length), request]));
      await once(socket, "data", { signal });
    } finally {
      socket.destroy();
    }
  }
}

const int16 = (value: number): Buffer => {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
};

const int32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};

const string = (value: string): Buffer => Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);
