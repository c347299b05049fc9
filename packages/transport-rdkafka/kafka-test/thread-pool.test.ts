import { lookup } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { encodeUtf8, Role, type WriterSession } from "@krabka/core";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { RdKafkaTransport } from "../src/index.js";

const SESSION = { transactionTimeoutMs: 10_000, mayMint: () => true };
const WATCH_MS = 3_000;
const LIMIT_MS = 200;

let cluster: KafkaCluster;
const transports: RdKafkaTransport[] = [];

beforeAll(async () => {
  cluster = await startKafka({ proxied: true });
});
afterEach(async () => {
  cluster.faults?.reset();
  await Promise.all(transports.splice(0).map((transport) => transport.close()));
});
afterAll(async () => {
  await cluster.close();
});

const transport = (bootstrap: string): RdKafkaTransport => {
  const made = new RdKafkaTransport({ brokers: bootstrap, partitions: 1, requestTimeoutMs: 60_000 });
  transports.push(made);
  return made;
};

const value = encodeUtf8("v");
const record = { topic: "__coordination_state", partition: 0, key: value, value, headers: [] };

/** Longest time that a file read and a name lookup took, one after the other. */
const slowestWork = async (): Promise<{ readMs: number; lookupMs: number }> => {
  const slowest = { readMs: 0, lookupMs: 0 };
  const untilMs = performance.now() + WATCH_MS;
  while (performance.now() < untilMs) {
    const startedAtMs = performance.now();
    await readFile(new URL(import.meta.url));
    const readAtMs = performance.now();
    await lookup("localhost");
    slowest.readMs = Math.max(slowest.readMs, readAtMs - startedAtMs);
    slowest.lookupMs = Math.max(slowest.lookupMs, performance.now() - readAtMs);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return slowest;
};

const expectFree = async (): Promise<void> => {
  const { readMs, lookupMs } = await slowestWork();
  expect(readMs).toBeLessThan(LIMIT_MS);
  expect(lookupMs).toBeLessThan(LIMIT_MS);
};

describe("the process's own work while brokers are down", () => {
  it.each([8, 64])("goes on while %i roles write", async (count) => {
    const leader = transport(cluster.proxiedBootstrap ?? "");
    await leader.prepare();
    const sessions: WriterSession[] = [];
    for (let index = 0; index < count; index++) {
      sessions.push(await leader.openSession(Role.of(`writer-${count}-${index}`), SESSION));
    }
    await Promise.all(sessions.map((session) => session.commit([record])));
    cluster.faults?.blackhole(true);
    const outcomes = sessions.map((session) => session.commit([record]));
    await expectFree();
    await leader.close();
    for (const { status } of await Promise.all(outcomes)) expect(status).toBe("unknown");
  });

  it.each([8, 64])("goes on while %i roles try to mint", async (count) => {
    const candidate = transport(cluster.proxiedBootstrap ?? "");
    cluster.faults?.blackhole(true);
    const mints = Array.from({ length: count }, (_, index) =>
      candidate
        .openSession(Role.of(`minter-${count}-${index}`), SESSION)
        .catch((error: { code?: string }) => error.code),
    );
    await expectFree();
    await candidate.close();
    expect(new Set(await Promise.all(mints))).toEqual(new Set(["CLOSED"]));
  });

  it("goes on while 64 roles try to mint where nobody listens", async () => {
    const candidate = transport("127.0.0.1:1");
    const mints = Array.from({ length: 64 }, (_, index) =>
      candidate.openSession(Role.of(`nobody-${index}`), SESSION).catch((error: { code?: string }) => error.code),
    );
    await expectFree();
    await candidate.close();
    expect(new Set(await Promise.all(mints))).toEqual(new Set(["CLOSED"]));
  });
});
