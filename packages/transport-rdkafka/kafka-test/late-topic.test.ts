import { encodeEntry, KrabkaError, MemberId, partitionForRole, Role } from "@krabka/core";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RdKafkaTransport } from "../src/index.js";

const TOPIC = "late";
const PATIENCE_MS = 15_000;
const role = Role.of("role");

let cluster: KafkaCluster;
let admin: kafkajs.Admin;

beforeAll(async () => {
  cluster = await startKafka();
  const { logLevel } = kafkajs;
  admin = new kafkajs.Kafka({ brokers: [cluster.bootstrap], logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
});
afterAll(async () => {
  await admin.disconnect();
  await cluster.close();
});

const createTopic = () =>
  admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 1, replicationFactor: 1 }], waitForLeaders: true });

const registration = (member: string) =>
  encodeEntry({
    kind: "registration",
    role,
    member: MemberId.of(member),
    registeredAtMs: 1n,
    attributes: {},
  });

/** Follows the role; collects the members that registered and the codes of the errors. */
const follow = (transport: RdKafkaTransport) => {
  const members: string[] = [];
  const codes: string[] = [];
  const feed = transport.follow(role, {
    onRecords: (records) => members.push(...records.map((record) => ("member" in record ? record.member : ""))),
    onUncommitted: () => undefined,
    onReset: () => undefined,
    onMalformed: () => undefined,
    onError: (error) => codes.push(KrabkaError.is(error) ? error.code : String(error)),
  });
  return { feed, members, codes };
};

const until = async (done: () => boolean): Promise<void> => {
  const endsAtMs = performance.now() + PATIENCE_MS;
  while (!done()) {
    if (performance.now() > endsAtMs) throw new Error("waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

describe("a topic that brokers do not know", () => {
  const target = { topic: TOPIC, partition: partitionForRole(role, 1) };

  it("does not end reading when it is known again a moment later", async () => {
    await createTopic();
    const transport = new RdKafkaTransport({ brokers: cluster.bootstrap, topic: TOPIC, partitions: 1 });
    const { feed, members, codes } = follow(transport);
    await transport.appendUnfenced(target, [registration("before")]);
    await until(() => members.includes("before"));
    // For so long librdkafka forgives a new topic's absence by itself (`topic.metadata.propagation.max.ms`).
    await new Promise((resolve) => setTimeout(resolve, 3_500));
    await admin.deleteTopics({ topics: [TOPIC] });
    // Until librdkafka has noticed.
    await new Promise((resolve) => setTimeout(resolve, 500));
    await createTopic();
    await until(() => codes.length > 0);
    expect(codes).not.toContain("UNKNOWN_TOPIC");
    await feed.sync({ timeoutMs: PATIENCE_MS });
    await transport.appendUnfenced(target, [registration("after")], { timeoutMs: PATIENCE_MS });
    await until(() => members.includes("after"));
    await transport.close();
  });

  it("ends reading when it stays unknown", async () => {
    const transport = new RdKafkaTransport({ brokers: cluster.bootstrap, topic: TOPIC, partitions: 1 });
    const { feed, members, codes } = follow(transport);
    await feed.sync({ timeoutMs: PATIENCE_MS });
    await transport.appendUnfenced(target, [registration("last")]);
    await until(() => members.includes("last"));
    await admin.deleteTopics({ topics: [TOPIC] });
    await until(() => codes.includes("UNKNOWN_TOPIC"));
    await expect(feed.sync({ timeoutMs: PATIENCE_MS })).rejects.toMatchObject({ code: "UNKNOWN_TOPIC" });
    await transport.close();
  });
});
