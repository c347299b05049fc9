import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import { CoordinationClient, KrabkaError, MemberId, Role } from "@krabka/client";
import { startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import { expect, inject, it } from "vitest";

const LEASE_MS = 500;
const ADD_PARTITIONS_TO_TXN = 24;

it("E7: with a blocked event loop isLeader is false and write rejects at once, before anything is sent", async () => {
  await using proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  const transport = new KafkaJsTransport({
    kafka: { brokers: proxy.bootstrap.split(","), logLevel: logLevel.NOTHING },
  });
  await using client = new CoordinationClient(transport, { leaseMs: LEASE_MS });
  const leadership = await client.acquire(Role.of(`blocked-${randomUUID()}`), MemberId.of("m"), { timeoutMs: 10_000 });
  const sentBefore = proxy.requests(ADD_PARTITIONS_TO_TXN);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * LEASE_MS);
  const isLeader = leadership.isLeader;
  const write = leadership.write({ topic: "any", value: "never" }).catch((error: unknown) => error);
  const calledAtMs = performance.now();
  const error = await write;
  expect(isLeader).toBe(false);
  expect(KrabkaError.is(error) && error.code).toBe("NOT_LEADER");
  expect(performance.now() - calledAtMs).toBeLessThan(50);
  expect(proxy.requests(ADD_PARTITIONS_TO_TXN)).toBe(sentBefore);
});

it("a process that was stopped for two leases says no at its first breath, and sends nothing", async () => {
  await using proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  const child = fork(fileURLToPath(new URL("stopped-leader.mjs", import.meta.url)), [
    proxy.bootstrap,
    String(LEASE_MS),
  ]);
  try {
    const said: { kind: string; isLeader?: boolean; write?: string; tookMs?: number }[] = [];
    const hear = (kind: string) =>
      new Promise<(typeof said)[number]>((resolve) => {
        child.on("message", (message: (typeof said)[number]) => {
          if (message.kind === kind) resolve(message);
        });
      });
    await hear("leading");
    const blocked = hear("about-to-block");
    child.send("block");
    await blocked;
    await new Promise((resolve) => setTimeout(resolve, 100));
    child.kill("SIGSTOP");
    const sentBefore = proxy.requests(ADD_PARTITIONS_TO_TXN);
    await new Promise((resolve) => setTimeout(resolve, 2 * LEASE_MS));
    const woke = hear("woke");
    child.kill("SIGCONT");
    expect(await woke).toMatchObject({ isLeader: false, write: "NOT_LEADER" });
    expect(proxy.requests(ADD_PARTITIONS_TO_TXN)).toBe(sentBefore);
  } finally {
    child.kill("SIGKILL");
  }
});
