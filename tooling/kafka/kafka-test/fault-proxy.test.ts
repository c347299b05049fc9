import { randomUUID } from "node:crypto";
import { type RunningFaultProxy, startFaultProxy } from "@krabka/tooling-kafka";
import { Kafka, logLevel, type Producer } from "kafkajs";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";

const PRODUCE = 0;
const METADATA = 3;
const FIND_COORDINATOR = 10;
const ADD_PARTITIONS = 24;
const END_TXN = 26;
const INVALID_PRODUCER_EPOCH = 47;
const PRODUCER_FENCED = 90;
const TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53;

let proxy: RunningFaultProxy;
let kafka: Kafka;
let topic: string;
const open: { disconnect(): Promise<void> }[] = [];

function clientOf(bootstrap: string, requestTimeout = 1_000): Kafka {
  return new Kafka({
    brokers: bootstrap.split(","),
    requestTimeout,
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, retries: 5 },
  });
}

async function transactionalProducer(transactionalId: string): Promise<Producer> {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 });
  open.push(producer);
  await producer.connect();
  return producer;
}

/** What a reader of committed records finds, up to a marker that is written now. */
async function committed(): Promise<string[]> {
  const direct = clientOf(inject("kafkaBootstrap"), 30_000);
  const writer = direct.producer();
  open.push(writer);
  await writer.connect();
  const marker = randomUUID();
  await writer.send({ topic, messages: [{ value: marker }] });
  const consumer = direct.consumer({ groupId: randomUUID() });
  open.push(consumer);
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values: string[] = [];
  await new Promise<void>((resolve, reject) => {
    const eachMessage = async ({ message }: { message: { value: Buffer | null } }) => {
      const value = String(message.value);
      if (value === marker) resolve();
      else values.push(value);
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  return values;
}

beforeAll(async () => {
  proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  kafka = clientOf(proxy.bootstrap);
  topic = `fault-proxy-${randomUUID()}`;
});

afterEach(async () => {
  proxy.reset();
  await Promise.all(open.splice(0).map((client) => client.disconnect()));
  topic = `fault-proxy-${randomUUID()}`;
});

afterAll(() => proxy.close());

async function createTopic(): Promise<void> {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
}

describe("a client behind the fault proxy", () => {
  test("is told the proxy's addresses and sends every request through it", async () => {
    await createTopic();
    const produced = proxy.requests(PRODUCE);
    const sought = proxy.requests(FIND_COORDINATOR);
    const admin = kafka.admin();
    await admin.connect();
    const { brokers } = await admin.describeCluster();
    await admin.disconnect();
    expect(brokers.map(({ host, port }) => `${host}:${port}`).join(",")).toBe(proxy.bootstrap);

    const producer = await transactionalProducer(randomUUID());
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "a" }] });
    await transaction.commit();
    expect(proxy.requests(METADATA)).toBeGreaterThan(0);
    expect(proxy.requests(FIND_COORDINATOR)).toBeGreaterThan(sought);
    expect(proxy.requests(PRODUCE)).toBe(produced + 1);
    expect(await committed()).toEqual(["a"]);
  });

  test("gets no answer to a commit that the broker has executed", async () => {
    await createTopic();
    const producer = await transactionalProducer(randomUUID());
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "a" }] });
    const dropped = proxy.inject({ apiKey: END_TXN, action: "drop-answer" });
    await expect(transaction.commit()).rejects.toThrow(/timed out/i);
    await dropped.hit;
    expect(dropped.hits).toBe(1);
    expect(await committed()).toEqual(["a"]);
  });

  test("loses the connection before the broker sees the request", async () => {
    await createTopic();
    const transactionalId = randomUUID();
    const producer = await transactionalProducer(transactionalId);
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "a" }] });
    proxy.inject({ apiKey: END_TXN, action: "cut-before" });
    await expect(transaction.commit()).rejects.toThrow();
    // The transaction is still open; the next one of that name makes the broker abort it. kafkajs mints there.
    const next = await transactionalProducer(transactionalId);
    await next.transaction();
    expect(await committed()).toEqual([]);
  });

  test("loses the connection after the broker has executed the request", async () => {
    await createTopic();
    const producer = await transactionalProducer(randomUUID());
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "a" }] });
    const cut = proxy.inject({ apiKey: END_TXN, action: "cut-after" });
    await expect(transaction.commit()).rejects.toThrow();
    await cut.hit;
    expect(await committed()).toEqual(["a"]);
  });

  test("may go on elsewhere while its held commit waits, which the broker then refuses", async () => {
    await createTopic();
    const transactionalId = randomUUID();
    const producer = await transactionalProducer(transactionalId);
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "late" }] });
    const held = proxy.inject({
      apiKey: END_TXN,
      when: ({ body }) => body.includes(transactionalId),
      action: { hold: true },
    });
    await expect(transaction.commit()).rejects.toThrow(/timed out/i);
    await producer.disconnect();

    const next = await transactionalProducer(transactionalId);
    const second = await next.transaction();
    await second.send({ topic, messages: [{ value: "next" }] });
    held.release();
    const answer = await held.brokerAnswer;
    expect([INVALID_PRODUCER_EPOCH, PRODUCER_FENCED]).toContain(answer.readInt16BE(4));
    await second.commit();
    expect(await committed()).toEqual(["next"]);
  });

  test("sees delayed answers late and in order", async () => {
    await createTopic();
    const producer = await transactionalProducer(randomUUID());
    const transaction = await producer.transaction();
    const delayed = proxy.inject({ apiKey: ADD_PARTITIONS, action: { delayAnswerMs: 300 } });
    const startedAtMs = performance.now();
    await transaction.send({ topic, messages: [{ value: "a" }] });
    expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(295);
    expect(delayed.hits).toBe(1);
    await transaction.commit();
  });

  test("believes a made-up answer", async () => {
    await createTopic();
    const producer = await transactionalProducer(randomUUID());
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "a" }] });
    const answer = Buffer.alloc(6);
    answer.writeInt16BE(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 4);
    const commits = proxy.requests(END_TXN);
    const madeUp = proxy.inject({ apiKey: END_TXN, action: { answer: () => answer } });
    await expect(transaction.commit()).rejects.toMatchObject({ code: TRANSACTIONAL_ID_AUTHORIZATION_FAILED });
    expect(madeUp.hits).toBe(1);
    expect(proxy.requests(END_TXN)).toBe(commits + 1);
  });

  test("hears nothing from a dark broker, and the broker again when the light is back", async () => {
    await createTopic();
    const admin = clientOf(proxy.bootstrap, 300).admin({ retry: { retries: 1 } });
    open.push(admin);
    await admin.connect();
    proxy.blackhole(true);
    await expect(admin.listTopics()).rejects.toThrow(/timed out/i);
    proxy.blackhole(false);
    expect(await admin.listTopics()).toContain(topic);
  });

  test("loses what is in flight when all connections are cut, and connects anew", async () => {
    await createTopic();
    const admin = kafka.admin();
    open.push(admin);
    await admin.connect();
    const held = proxy.inject({ apiKey: METADATA, action: { hold: true } });
    const listed = admin.listTopics();
    await held.hit;
    proxy.cut();
    await expect(listed).rejects.toThrow("Closed connection");
    expect(await admin.listTopics()).toContain(topic);
  });

  test("meets a rule as many times as the rule says", async () => {
    const admin = kafka.admin();
    open.push(admin);
    await admin.connect();
    const twice = proxy.inject({ apiKey: METADATA, times: 2, action: "cut-before" });
    await expect(admin.listTopics()).rejects.toThrow("Closed connection");
    await expect(admin.listTopics()).rejects.toThrow("Closed connection");
    await admin.listTopics();
    expect(twice.hits).toBe(2);
  });
});
