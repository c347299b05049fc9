import { randomUUID } from "node:crypto";
import {
  coordinatorOf,
  type KafkaCluster,
  leaderOf,
  moveCoordinator,
  moveLeader,
  startKafka,
} from "@krabka/tooling-kafka";
import { type Admin, Kafka, logLevel } from "kafkajs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ask } from "../src/ask.js";
import { WireWriter } from "../src/wire.js";

const FIND_COORDINATOR = 10;
const TRANSACTION = 1;

let cluster: KafkaCluster;
let admin: Admin;
let kafka: Kafka;

beforeAll(async () => {
  cluster = await startKafka({ brokers: 3 });
  kafka = new Kafka({ brokers: cluster.bootstrap.split(","), logLevel: logLevel.NOTHING });
  admin = kafka.admin();
  await admin.connect();
});

afterAll(async () => {
  await admin?.disconnect();
  await cluster?.close();
});

test("A partition is led by each of its replicas in turn", async () => {
  await admin.createTopics({ topics: [{ topic: "t", numPartitions: 2, replicationFactor: 3 }], waitForLeaders: true });
  const name = { topic: "t", partition: 1 };
  const seen = [await leaderOf(cluster.bootstrap, name)];
  for (let move = 0; move < 3; move++) {
    await moveLeader(cluster.bootstrap, name);
    const { topics } = await admin.fetchTopicMetadata({ topics: ["t"] });
    const leader = topics[0]?.partitions.find(({ partitionId }) => partitionId === 1)?.leader;
    seen.push(leader as number);
  }
  expect(new Set(seen.slice(0, 3))).toEqual(new Set([1, 2, 3]));
  expect(seen[3]).toBe(seen[0]);
});

test("A transactional id's coordinator is the one that the brokers name, also after it moved", async () => {
  const transactionalId = `id-${randomUUID()}`;
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await (await producer.transaction()).abort();
  await producer.disconnect();
  const before = await coordinatorOf(cluster.bootstrap, transactionalId);
  expect(await namedCoordinatorOf(transactionalId)).toBe(before);
  await moveCoordinator(cluster.bootstrap, transactionalId);
  const after = await coordinatorOf(cluster.bootstrap, transactionalId);
  expect(after).not.toBe(before);
  await expect.poll(() => namedCoordinatorOf(transactionalId), { timeout: 20_000 }).toBe(after);
});

test("A leader is also found while the first broker stands still", async () => {
  const replicaAssignment = [{ partition: 0, replicas: [2, 3, 1] }];
  await admin.createTopics({ topics: [{ topic: "u", replicaAssignment }], waitForLeaders: true });
  const [first] = cluster.brokers;
  first?.pause();
  try {
    expect(await leaderOf(cluster.bootstrap, { topic: "u", partition: 0 })).toBe(2);
  } finally {
    first?.resume();
  }
});

/** A broker's own word. */
async function namedCoordinatorOf(transactionalId: string): Promise<number> {
  const address = { host: "127.0.0.1", port: cluster.brokers[0]?.port ?? 0 };
  const body = new WireWriter().string(transactionalId).int8(TRANSACTION).bytes();
  const answer = await ask(address, { apiKey: FIND_COORDINATOR, version: 1, body }, AbortSignal.timeout(10_000));
  answer.int32(); // throttle time
  answer.int16(); // error
  answer.string(); // its message
  return answer.int32();
}
