import { Role } from "@krabka/core";
import { startFaultProxy } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { afterEach, describe, expect, inject, it } from "vitest";
import { KafkaJsTransport, type KafkaJsTransportOptions } from "../src/index.js";
import { FIND_COORDINATOR } from "../src/wire/api.js";
import { silentListener } from "./silent-listener.js";

const SILENT = { logLevel: kafkajs.logLevel.NOTHING, clientId: "connections" };
const SESSION = { transactionTimeoutMs: 30_000, mayMint: () => true };

const sockets = (): number => process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap").length;

/** Nothing listens on port 1 of the loopback interface. */
const NOBODY = "127.0.0.1:1";

describe("connections of the kafkajs transport", () => {
  const transports: KafkaJsTransport[] = [];
  const open = (options: Partial<KafkaJsTransportOptions> = {}): KafkaJsTransport => {
    const brokers = inject("kafkaBootstrap").split(",");
    const opened = new KafkaJsTransport({ kafka: { ...SILENT, brokers }, topic: "connections", ...options });
    transports.push(opened);
    return opened;
  };

  afterEach(async () => {
    await Promise.all(transports.splice(0).map((opened) => opened.close()));
  });

  it("are at most three for 50 roles that are followed, minted and described, and none after close", async () => {
    const before = sockets();
    const transport = open();
    await transport.prepare({ timeoutMs: 20_000 });
    const roles = Array.from({ length: 50 }, (_, index) => Role.of(`many-${index}`));
    await Promise.all(
      roles.map(async (role) => {
        await transport.follow(role, silentListener).sync();
        await transport.openSession(role, SESSION);
        await transport.describe(role);
      }),
    );
    expect(sockets() - before).toBeGreaterThan(1);
    expect(sockets() - before).toBeLessThanOrEqual(3);
    await transport.close();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(sockets()).toBe(before);
  });

  it("are one more while a broker is slow, and that one is closed again", async () => {
    const proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
    const transport = open({ kafka: { ...SILENT, brokers: proxy.bootstrap.split(",") } });
    await transport.prepare({ timeoutMs: 20_000 });
    await new Promise((resolve) => setTimeout(resolve, 100));
    const before = sockets();
    const slow = proxy.inject({ apiKey: FIND_COORDINATOR.key, action: { hold: true } });
    const described = transport.describe(Role.of("slow"));
    while (proxy.requests(FIND_COORDINATOR.key) < 2) await new Promise((resolve) => setTimeout(resolve, 10));
    await new Promise((resolve) => setTimeout(resolve, 100));
    slow.release();
    await described;
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(sockets()).toBe(before);
    await transport.close();
    await proxy.close();
  });

  it("serve calls that are made at once before any broker is known", async () => {
    for (let round = 0; round < 5; round++) {
      const transport = open();
      const [first, second] = [Role.of(`at-once-${round}`), Role.of(`at-once-too-${round}`)];
      await Promise.all([
        transport.describe(first),
        transport.prepare({ timeoutMs: 20_000 }),
        transport.describe(second),
        transport.openSession(first, SESSION),
        transport.openSession(second, SESSION),
      ]);
    }
  });

  it("take a Kafka object of the caller's as well as a configuration", async () => {
    const kafka = new kafkajs.Kafka({ ...SILENT, brokers: inject("kafkaBootstrap").split(",") });
    const { topic } = await open({ kafka }).prepare({ timeoutMs: 20_000 });
    expect(topic).toEqual({ name: "connections", partitions: 16 });
  });

  it("that nobody answers make prepare reject within its limit, naming the brokers", async () => {
    const transport = open({ kafka: { ...SILENT, brokers: [NOBODY] } });
    const startedAtMs = performance.now();
    const refusal = transport.prepare({ timeoutMs: 500 });
    await expect(refusal).rejects.toMatchObject({ code: "UNREACHABLE", message: expect.stringContaining(NOBODY) });
    expect(performance.now() - startedAtMs).toBeLessThan(1000);
  });

  it("go to another configured broker when the first is down", async () => {
    const brokers = [NOBODY, ...inject("kafkaBootstrap").split(",")];
    await open({ kafka: { ...SILENT, brokers } }).prepare({ timeoutMs: 20_000 });
  });

  it("are closed within a second while nobody answers, and every call that waits rejects", async () => {
    const transport = open({ kafka: { ...SILENT, brokers: [NOBODY] } });
    const role = Role.of("nobody");
    const calls = [
      transport.prepare({ timeoutMs: 60_000 }),
      transport.openSession(role, { ...SESSION, timeoutMs: 60_000 }),
      transport.follow(role, silentListener).sync({ timeoutMs: 60_000 }),
      transport.describe(role, { timeoutMs: 60_000 }),
    ];
    const settled = Promise.allSettled(calls);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const startedAtMs = performance.now();
    await transport.close();
    expect((await settled).map(({ status }) => status)).toEqual(calls.map(() => "rejected"));
    expect(performance.now() - startedAtMs).toBeLessThan(1000);
  });
});
