import { lookup } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { encodeUtf8, Role, type WriterSession } from "@krabka/core";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { RdKafkaTransport } from "../src/index.js";

const SESSION = { transactionTimeoutMs: 10_000, mayMint: () => true };
const WATCH_MS = 2_000;
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

interface Slowest {
  readMs: number;
  lookupMs: number;
}

/** Longest time that a file read and a name lookup took, one after the other. */
const slowestWork = async (): Promise<Slowest> => {
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

/** @param before what the machine alone makes of it: it may be busy with something else */
const expectFree = async (what: string, before: Slowest): Promise<void> => {
  const { readMs, lookupMs } = await slowestWork();
  const [read, lookedUp] = [`${readMs.toFixed(0)} ms`, `${lookupMs.toFixed(0)} ms`];
  const alone = `${before.readMs.toFixed(0)} and ${before.lookupMs.toFixed(0)} ms before`;
  console.log(`${what}: a file read took ${read} at most, a name lookup ${lookedUp}; ${alone}`);
  expect(readMs).toBeLessThan(LIMIT_MS + before.readMs);
  expect(lookupMs).toBeLessThan(LIMIT_MS + before.lookupMs);
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
    const before = await slowestWork();
    cluster.faults?.blackhole(true);
    const outcomes = sessions.map((session) => session.commit([record]));
    await expectFree(`${count} roles write`, before);
    await leader.close();
    for (const { status } of await Promise.all(outcomes)) expect(status).toBe("unknown");
  });

  it.each([8, 64])("goes on while %i roles try to mint", async (count) => {
    const before = await slowestWork();
    const candidate = transport(cluster.proxiedBootstrap ?? "");
    cluster.faults?.blackhole(true);
    const mints = Array.from({ length: count }, (_, index) =>
      candidate
        .openSession(Role.of(`minter-${count}-${index}`), SESSION)
        .catch((error: { code?: string }) => error.code),
    );
    await expectFree(`${count} roles mint`, before);
    await candidate.close();
    expect(new Set(await Promise.all(mints))).toEqual(new Set(["CLOSED"]));
  });

  it("goes on while 64 roles try to mint where nobody listens", async () => {
    const before = await slowestWork();
    const candidate = transport("127.0.0.1:1");
    const mints = Array.from({ length: 64 }, (_, index) =>
      candidate.openSession(Role.of(`nobody-${index}`), SESSION).catch((error: { code?: string }) => error.code),
    );
    await expectFree("64 roles mint where nobody listens", before);
    await candidate.close();
    expect(new Set(await Promise.all(mints))).toEqual(new Set(["CLOSED"]));
  });
});
