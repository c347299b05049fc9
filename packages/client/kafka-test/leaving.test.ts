import { randomUUID } from "node:crypto";
import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { type RunningFaultProxy, startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { Kafka, logLevel } from "kafkajs";
import { expect, inject, it } from "vitest";
import { committedValues } from "./committed-values.js";

const INIT_PRODUCER_ID = 22;
const END_TXN = 26;
const LEASE_MS = 2_000;

const direct = (bootstrap: string) => new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });

const clientThrough = ({ bootstrap }: RunningFaultProxy, leaseMs: number) => {
  const kafka = { brokers: bootstrap.split(","), logLevel: logLevel.NOTHING };
  return new CoordinationClient(new KafkaJsTransport({ kafka }), { leaseMs });
};

async function newTopic(bootstrap: string): Promise<string> {
  const topic = `commands-${randomUUID()}`;
  const admin = direct(bootstrap).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  return topic;
}

it("a resignation that drains for longer than a lease keeps the lease: every accepted write is committed first", async () => {
  const bootstrap = inject("kafkaBootstrap");
  const topic = await newTopic(bootstrap);
  await using proxy = await startFaultProxy({ bootstrap });
  await using standbyProxy = await startFaultProxy({ bootstrap });
  await using a = clientThrough(proxy, LEASE_MS);
  await using b = clientThrough(standbyProxy, LEASE_MS);
  const role = Role.of(`drain-${randomUUID()}`);
  const leadership = await a.acquire(role, MemberId.of("a"));
  const next = b.acquire(role, MemberId.of("b"));
  for await (const { roster } of a.observe(role)) if (roster.some(({ member }) => member === "b")) break;
  proxy.inject({ apiKey: END_TXN, times: 1_000, action: { delayAnswerMs: 250 } });
  const values = Array.from({ length: 20 }, (_, index) => String(index));
  const startedAtMs = performance.now();
  const writes = values.map((value) => leadership.write({ topic, value }));
  const minted = standbyProxy.requests(INIT_PRODUCER_ID);
  const left = leadership.resign();
  await Promise.all(writes);
  expect(performance.now() - startedAtMs).toBeGreaterThan(2 * LEASE_MS);
  expect(standbyProxy.requests(INIT_PRODUCER_ID)).toBe(minted);
  await left;
  expect((await next).isLeader).toBe(true);
  expect(await committedValues(direct(bootstrap), topic)).toEqual(values);
});

it("a write whose limit passes while the next epoch is on its way rejects in time, and is never visible", async () => {
  const bootstrap = inject("kafkaBootstrap");
  const topic = await newTopic(bootstrap);
  await using proxy = await startFaultProxy({ bootstrap });
  await using client = clientThrough(proxy, 20_000);
  const leadership = await client.acquire(Role.of(`limit-${randomUUID()}`), MemberId.of("a"));
  proxy.inject({ apiKey: END_TXN, action: "cut-after" });
  await leadership.write({ topic, value: "1" });
  const epoch = proxy.inject({ apiKey: INIT_PRODUCER_ID, action: { hold: true } });
  const startedAtMs = performance.now();
  const never = leadership.write({ topic, value: "never" }, { timeoutMs: 500 });
  await expect(never).rejects.toMatchObject({ code: "TIMEOUT" });
  expect(performance.now() - startedAtMs).toBeLessThan(1_500);
  expect(epoch.hits).toBe(1);
  epoch.release();
  await leadership.write({ topic, value: "2" });
  expect(leadership.isLeader).toBe(true);
  expect(await committedValues(direct(bootstrap), topic)).toEqual(["1", "2"]);
});
