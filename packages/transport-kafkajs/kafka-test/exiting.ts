import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";

const LIMIT_MS = 5_000;
const script = fileURLToPath(new URL("exit-script.mjs", import.meta.url));

type Child = ChildProcessByStdio<Writable, Readable, null>;

/** Declares the tests of a process whose transport is closed. The bodies are the same for every transport. */
export const describeExit = (name: "kafkajs" | "rdkafka"): void => {
  let cluster: KafkaCluster;
  beforeAll(async () => {
    cluster = await startKafka({ proxied: true });
  });
  afterEach(() => cluster.faults?.reset());
  afterAll(() => cluster.close());

  /** A process that has said this. */
  const processThatSaid = async (wanted: string): Promise<Child> => {
    const bootstrap = cluster.proxiedBootstrap ?? "";
    const child = spawn(process.execPath, [script, name, bootstrap], { stdio: ["pipe", "pipe", "inherit"] });
    for await (const line of createInterface(child.stdout)) if (line === wanted) return child;
    throw new Error(`The process ended before it said "${wanted}"`);
  };

  /** How long it takes once it was told to close. */
  const expectEnd = async (child: Child): Promise<void> => {
    const startedAtMs = performance.now();
    const timer = setTimeout(() => child.kill("SIGKILL"), 2 * LIMIT_MS);
    child.stdin.end();
    const [code, signal] = await once(child, "exit");
    clearTimeout(timer);
    expect([code, signal]).toEqual([0, null]);
    expect(performance.now() - startedAtMs).toBeLessThan(LIMIT_MS);
  };

  describe(`J1: a process on ${name} ends by itself`, () => {
    it("that led and wrote, and closes in the middle of a write", async () => {
      await expectEnd(await processThatSaid("committed"));
    });

    it("that led and wrote, and closes when no broker answers any more", async () => {
      const child = await processThatSaid("committed");
      cluster.faults?.blackhole(true);
      await expectEnd(child);
    });

    it("that closes before any broker ever answered", async () => {
      cluster.faults?.blackhole(true);
      await expectEnd(await processThatSaid("opened"));
    });
  });
};
