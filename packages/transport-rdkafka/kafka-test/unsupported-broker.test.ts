import { Role } from "@krabka/core";
import { type RunningFaultProxy, startFaultProxy } from "@krabka/tooling-kafka";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { RdKafkaTransport } from "../src/index.js";

const API_VERSIONS = 18;
const INIT_PRODUCER_ID = 22;
const ADD_PARTITIONS_TO_TXN = 24;
const UNSUPPORTED_VERSION = 35;
/** The newest versions of Kafka 2.0 by API key. */
const SERVED: readonly (readonly [key: number, version: number])[] = [
  [0, 6], // Produce
  [1, 8], // Fetch
  [2, 3], // ListOffsets
  [3, 6], // Metadata
  [8, 4], // OffsetCommit
  [9, 4], // OffsetFetch
  [10, 2], // FindCoordinator
  [17, 1], // SaslHandshake
  [API_VERSIONS, 2],
  [19, 3], // CreateTopics
  [INIT_PRODUCER_ID, 1],
  [ADD_PARTITIONS_TO_TXN, 1],
  [25, 1], // AddOffsetsToTxn
  [26, 1], // EndTxn
];

let proxy: RunningFaultProxy;
let transport: RdKafkaTransport;

beforeEach(async () => {
  proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  transport = new RdKafkaTransport({ brokers: proxy.bootstrap, topic: "unsupported" });
});

afterEach(async () => {
  await transport.close();
  await proxy.close();
});

const int16s = (...values: readonly number[]): Buffer => {
  const bytes = Buffer.alloc(2 * values.length);
  for (const [index, value] of values.entries()) bytes.writeInt16BE(value, 2 * index);
  return bytes;
};

/** Makes the broker look like one that serves less. */
const pretendWithout = (...missing: readonly number[]): void => {
  const served = SERVED.filter(([key]) => !missing.includes(key));
  const listOf = (ranges: readonly Buffer[]): Buffer => {
    const count = Buffer.alloc(4);
    count.writeInt32BE(ranges.length);
    return Buffer.concat([count, ...ranges]);
  };
  const ranges = listOf(served.map(([key, version]) => int16s(key, 0, version)));
  const answer = ({ apiVersion }: { readonly apiVersion: number }): Buffer =>
    Buffer.concat(apiVersion === 0 ? [int16s(0), ranges] : [int16s(UNSUPPORTED_VERSION), listOf([])]);
  proxy.inject({ apiKey: API_VERSIONS, times: 1_000, action: { answer } });
};

const mint = () => transport.openSession(Role.of("role"), { transactionTimeoutMs: 10_000, mayMint: () => true });

it("C7: a broker without InitProducerId, as before Kafka 0.11, is refused by the mint with the version that is wanted", async () => {
  pretendWithout(INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN);
  await expect(mint()).rejects.toMatchObject({ code: "UNSUPPORTED", message: expect.stringContaining("0.11") });
  expect(proxy.requests(INIT_PRODUCER_ID)).toBe(0);
});

it("C7: a broker that serves what Kafka 2.0 did is not refused", async () => {
  pretendWithout();
  await transport.prepare();
  const { pair } = await mint();
  expect(pair.epoch).toBeGreaterThanOrEqual(0);
});
