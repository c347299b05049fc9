import { type RunningFaultProxy, startFaultProxy } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { KafkaJsTransport } from "../src/index.js";
import { ALL_APIS, API_VERSIONS, DESCRIBE_TRANSACTIONS, END_TXN, FETCH } from "../src/wire/api.js";
import { ByteWriter } from "../src/wire/byte-writer.js";

interface Served {
  readonly key: number;
  readonly minVersion: number;
  readonly maxVersion: number;
}

let proxy: RunningFaultProxy;
let transport: KafkaJsTransport;

beforeEach(async () => {
  proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  const kafka = { brokers: proxy.bootstrap.split(","), logLevel: kafkajs.logLevel.NOTHING };
  transport = new KafkaJsTransport({ kafka, topic: "unsupported" });
});

afterEach(async () => {
  await transport.close();
  await proxy.close();
});

/** Makes the broker look like one that serves what is spoken here, but for one request. */
const pretend = (key: number, range: Omit<Served, "key"> | undefined): void => {
  const spoken = ALL_APIS.map((api): Served => ({ key: api.key, minVersion: 0, maxVersion: api.version }));
  const served = spoken.flatMap((entry) => (entry.key !== key ? entry : range === undefined ? [] : { key, ...range }));
  const answer = new ByteWriter().int16(0);
  answer.array(served, (entry) => answer.int16(entry.key).int16(entry.minVersion).int16(entry.maxVersion));
  proxy.inject({ apiKey: API_VERSIONS.key, times: 100, action: { answer: () => answer.bytes } });
};

it.each([
  ["has no DescribeTransactions, as before Kafka 3.0", DESCRIBE_TRANSACTIONS, undefined, "does not serve it"],
  ["has only an older Fetch, as before Kafka 2.7", FETCH, { minVersion: 0, maxVersion: 11 }, "serves 0 to 11"],
  ["no longer has the EndTxn that keeps the epoch", END_TXN, { minVersion: 3, maxVersion: 9 }, "serves 3 to 9"],
] as const)(
  "C7: a broker that %s is refused, naming it, the request and the versions",
  async (_, api, range, found) => {
    pretend(api.key, range);
    await expect(transport.prepare({ timeoutMs: 10_000 })).rejects.toMatchObject({
      code: "UNSUPPORTED",
      message: `${api.name} version ${api.version} is wanted; ${proxy.bootstrap} ${found}`,
    });
    expect(ALL_APIS.map(({ key }) => proxy.requests(key))).toEqual(ALL_APIS.map(() => 0));
  },
);

it("C7: a broker that serves exactly what is spoken here is not refused", async () => {
  pretend(-1, undefined);
  await expect(transport.prepare({ timeoutMs: 10_000 })).resolves.toMatchObject({ topic: { partitions: 16 } });
});
