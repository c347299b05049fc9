import { randomUUID } from "node:crypto";
import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { encodeEntry, partitionForRole } from "@krabka/core";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { Kafka, logLevel, Partitioners } from "kafkajs";
import { expect, inject, it } from "vitest";

const brokers = inject("kafkaBootstrap").split(",");
const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });

/** A coordination topic of its own, since these tests spoil theirs. */
const freshTopic = () => `state-${randomUUID().slice(0, 8)}`;

async function withAdmin<T>(work: (admin: ReturnType<Kafka["admin"]>) => Promise<T>): Promise<T> {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

const createTopic = (topic: string, numPartitions: number, policy: string) =>
  withAdmin((admin) =>
    admin.createTopics({
      topics: [{ topic, numPartitions, configEntries: [{ name: "cleanup.policy", value: policy }] }],
      waitForLeaders: true,
    }),
  );

const clientOn = (topic: string, more: { brokers?: string[] } = {}) =>
  new CoordinationClient(
    new KafkaJsTransport({ kafka: { brokers: more.brokers ?? brokers, logLevel: logLevel.NOTHING }, topic }),
    {
      leaseMs: 2_000,
    },
  );

it.each([
  ["delete", 16, /cleanup\.policy.*delete.*compact/],
  ["compact,delete", 16, /cleanup\.policy.*compact,delete.*compact/],
  ["compact", 8, /8.*16/],
] as const)(
  "C9: a topic with policy %s and %i partitions is refused, naming what was found and what is wanted",
  async (policy, partitions, message) => {
    const topic = freshTopic();
    await createTopic(topic, partitions, policy);
    await using client = clientOn(topic);
    await expect(client.acquire(Role.of("r"), MemberId.of("m"), { timeoutMs: 5_000 })).rejects.toMatchObject({
      code: "TOPIC_MISCONFIGURED",
      message: expect.stringMatching(message),
    });
  },
);

it("an unreachable cluster is told within the caller's time limit, with its address", async () => {
  await using client = clientOn(freshTopic(), { brokers: ["127.0.0.1:1"] });
  const startedAtMs = performance.now();
  await expect(client.acquire(Role.of("r"), MemberId.of("m"), { timeoutMs: 2_000 })).rejects.toMatchObject({
    code: expect.stringMatching(/^(UNREACHABLE|TIMEOUT)$/),
    message: expect.stringContaining("127.0.0.1:1"),
  });
  expect(performance.now() - startedAtMs).toBeLessThan(3_000);
});

it("an unknown topic in write is told as such, and the leadership goes on", async () => {
  await using client = clientOn(freshTopic());
  const leadership = await client.acquire(Role.of("r"), MemberId.of("m"), { timeoutMs: 10_000 });
  const nowhere = leadership.write({ topic: "no-such-topic", value: "x" }, { timeoutMs: 3_000 });
  await expect(nowhere).rejects.toMatchObject({
    code: "UNKNOWN_TOPIC",
    message: expect.stringContaining("no-such-topic"),
  });
  expect(leadership.isLeader).toBe(true);
  await leadership.renew();
});

it("a poison record in the coordination topic stops no role", async () => {
  const topic = freshTopic();
  await createTopic(topic, 16, "compact");
  const role = Role.of("poisoned");
  const partition = partitionForRole(role);
  const good = encodeEntry({
    kind: "registration",
    role,
    member: MemberId.of("other"),
    registeredAtMs: 0n,
    attributes: {},
  });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({
    topic,
    messages: [
      { partition, key: "poison", value: "poison" },
      { partition, key: Buffer.from(good.key as Uint8Array), value: Buffer.alloc(0) },
      { partition, key: Buffer.from(good.key as Uint8Array), value: Buffer.from([0, 9]) },
    ],
  });
  await producer.disconnect();
  await using client = clientOn(topic);
  const leadership = await client.acquire(role, MemberId.of("m"), { timeoutMs: 10_000 });
  expect(leadership.isLeader).toBe(true);
});
