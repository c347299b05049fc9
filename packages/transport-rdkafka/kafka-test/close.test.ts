import { encodeUtf8, type Role, Role as Roles } from "@krabka/core";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RdKafkaTransport } from "../src/index.js";
import { threadCount } from "./threads.js";

const CYCLES = Number(process.env.KRABKA_CLOSE_CYCLES ?? 30);
const SESSION = { transactionTimeoutMs: 10_000, mayMint: () => true };
const listener = {
  onRecords: () => {},
  onUncommitted: () => {},
  onReset: () => {},
  onMalformed: () => {},
  onError: () => {},
};

let cluster: KafkaCluster;
let names = 0;

beforeAll(async () => {
  cluster = await startKafka({ proxied: true });
});
afterAll(async () => {
  await cluster.close();
});

const role = (): Role => {
  names += 1;
  return Roles.of(`role-${names}`);
};

const transportTo = (bootstrap: string): RdKafkaTransport =>
  new RdKafkaTransport({ brokers: bootstrap, partitions: 1, requestTimeoutMs: 5_000 });

const record = { topic: "__coordination_state", key: encodeUtf8("k"), value: encodeUtf8("v"), headers: [] };

/** Everything that a member does, one after the other; ends early when the transport is closed under it. */
const work = async (transport: RdKafkaTransport, aRole: Role): Promise<void> => {
  await transport.prepare();
  const feed = transport.follow(aRole, listener);
  await feed.sync();
  await transport.appendUnfenced({ topic: record.topic, partition: 0 }, [record]);
  const session = await transport.openSession(aRole, SESSION);
  for (let write = 0; write < 5; write++) await session.commit([{ ...record, partition: 0 }]);
  await feed.sync();
};

const closesWithin = async (transport: RdKafkaTransport, limitMs: number): Promise<void> => {
  const startedAtMs = performance.now();
  await Promise.all([transport.close(), transport.close()]);
  expect(performance.now() - startedAtMs).toBeLessThan(limitMs);
};

describe("J2: close", () => {
  it(`ends everything at any point of the work, ${CYCLES} times`, { timeout: 20_000 * CYCLES }, async () => {
    for (let cycle = 0; cycle < CYCLES; cycle++) {
      const transport = transportTo(cluster.bootstrap);
      const ended = work(transport, role()).catch((error: { code?: string }) => error.code);
      await new Promise((resolve) => setTimeout(resolve, (cycle * 7) % 200));
      await closesWithin(transport, 5_000);
      expect([undefined, "CLOSED"]).toContain(await ended);
    }
  });

  it("settles after a fence, and closing again does nothing", async () => {
    const [one, other] = [transportTo(cluster.bootstrap), transportTo(cluster.bootstrap)];
    const contested = role();
    await one.prepare();
    const deposed = await one.openSession(contested, SESSION);
    await other.openSession(contested, SESSION);
    expect((await deposed.commit([{ ...record, partition: 0 }])).status).toBe("fenced");
    await closesWithin(one, 5_000);
    await closesWithin(one, 100);
    await closesWithin(other, 5_000);
  });

  it("settles while no broker answers", async () => {
    const transport = transportTo(cluster.proxiedBootstrap ?? "");
    await work(transport, role());
    const led = await transport.openSession(role(), SESSION);
    cluster.faults?.blackhole(true);
    try {
      const write = led.commit([{ ...record, partition: 0 }]);
      const mint = transport.openSession(role(), SESSION).catch((error: { code?: string }) => error.code);
      await new Promise((resolve) => setTimeout(resolve, 100));
      await closesWithin(transport, 5_000);
      expect((await write).status).toBe("unknown");
      expect(await mint).toBe("CLOSED");
    } finally {
      cluster.faults?.reset();
    }
  });

  it("settles where there never was a broker", async () => {
    const transport = transportTo("127.0.0.1:1");
    const ended = work(transport, role()).catch((error: { code?: string }) => error.code);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await closesWithin(transport, 5_000);
    expect(await ended).toBe("CLOSED");
  });

  it("leaves no thread behind (J1)", async () => {
    const cycle = async () => {
      const transport = transportTo(cluster.bootstrap);
      await work(transport, role());
      await transport.close();
    };
    await cycle();
    const before = await threadCount();
    for (let round = 0; round < 5; round++) await cycle();
    expect(await threadCount()).toBe(before);
  });
});
