import { randomUUID } from "node:crypto";
import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { type ProxiedRequest, startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { Kafka, logLevel } from "kafkajs";
import { expect, inject, it } from "vitest";
import { committedValues } from "./committed-values.js";

const PRODUCE = 0;
const CODES = [
  [43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"],
  [47, "INVALID_PRODUCER_EPOCH"],
  [49, "INVALID_PRODUCER_ID_MAPPING"],
  [48, "INVALID_TXN_STATE"],
  [45, "OUT_OF_ORDER_SEQUENCE_NUMBER"],
  [59, "UNKNOWN_PRODUCER_ID"],
] as const;
/** Of the producer id in a record batch. */
const PRODUCER_ID_AT = 43;

/** The one batch of a Produce request (version 8), and where it goes. */
const partsOf = ({ body }: ProxiedRequest) => {
  const idLength = body.readInt16BE(0);
  const topicAt = 2 + Math.max(0, idLength) + 2 + 4 + 4;
  const topicEnd = topicAt + 2 + body.readInt16BE(topicAt);
  const partition = body.readInt32BE(topicEnd + 4);
  return { isTransactional: idLength >= 0, topic: body.subarray(topicAt, topicEnd), partition, batchAt: topicEnd + 12 };
};

const isAppendUnderPair = (request: ProxiedRequest): boolean => {
  const { isTransactional, batchAt } = partsOf(request);
  return !isTransactional && request.body.readBigInt64BE(batchAt + PRODUCER_ID_AT) >= 0n;
};

const refusal =
  (code: number) =>
  (request: ProxiedRequest): Buffer => {
    const { topic, partition } = partsOf(request);
    const answer = Buffer.alloc(4 + 4 + 2 + 8 + 8 + 8 + 4 + 2 + 4);
    answer.writeInt32BE(1, 0);
    answer.writeInt32BE(partition, 4);
    answer.writeInt16BE(code, 8);
    answer.fill(0xff, 10, 34);
    answer.writeInt16BE(-1, 38);
    return Buffer.concat([Buffer.from([0, 0, 0, 1]), topic, answer]);
  };

it.each(CODES)(
  "a broker that answers fenced appends with %i (%s) is led on in transactions, under the first mint",
  async (code) => {
    await using proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
    const kafka = { brokers: proxy.bootstrap.split(","), logLevel: logLevel.NOTHING };
    const warnings: string[] = [];
    const transport = new KafkaJsTransport({ kafka, logger: { warn: (message) => warnings.push(message) } });
    await using client = new CoordinationClient(transport, { leaseMs: 1_500 });
    const topic = `commands-${randomUUID()}`;
    const direct = new Kafka({ brokers: inject("kafkaBootstrap").split(","), logLevel: logLevel.NOTHING });
    const admin = direct.admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
    await admin.disconnect();
    const fault = proxy.inject({
      apiKey: PRODUCE,
      times: 1_000,
      when: isAppendUnderPair,
      action: { answer: refusal(code) },
    });
    const [role, member] = [Role.of(`refused-${randomUUID()}`), MemberId.of("a")];
    const leadership = await client.acquire(role, member);
    expect(fault.hits).toBe(1);
    expect(leadership.token.epoch).toBe(0);
    expect(transport.capabilities.fencedAppend).toMatchObject({ supported: false });
    const { token } = leadership;
    expect((await client.describe(role)).isAuthoritative(token)).toBe(true);
    await leadership.write({ topic, value: "1" });
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect(leadership.isLeader).toBe(true);
    expect(leadership.token.equals(token)).toBe(true);
    await leadership.resign();
    const again = await client.acquire(role, member);
    expect(again.token.compareTo(token)).toBe(1);
    await again.write({ topic, value: "2" });
    expect(fault.hits).toBe(1);
    expect(warnings).toHaveLength(1);
    expect(await committedValues(direct, topic)).toEqual(["1", "2"]);
  },
);

it("a broker that does not know a new partition yet is asked again, for a second", async () => {
  await using proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  const kafka = { brokers: proxy.bootstrap.split(","), logLevel: logLevel.NOTHING };
  await using client = new CoordinationClient(new KafkaJsTransport({ kafka }), { leaseMs: 3_000 });
  const unknown = { apiKey: PRODUCE, action: { answer: refusal(3) } };
  const late = proxy.inject({ ...unknown, times: 2 });
  await using leadership = await client.acquire(Role.of(`late-${randomUUID()}`), MemberId.of("a"));
  expect(late.hits).toBe(2);
  expect(leadership.isLeader).toBe(true);
  const never = proxy.inject({ ...unknown, times: 1_000 });
  const refused = client.acquire(Role.of(`late-${randomUUID()}`), MemberId.of("a"), { timeoutMs: 10_000 });
  await expect(refused).rejects.toMatchObject({ code: "UNKNOWN_TOPIC" });
  never.cancel();
});
