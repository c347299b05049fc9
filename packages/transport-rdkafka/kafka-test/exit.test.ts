import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const LIMIT_MS = 5_000;
/** In this package's folder, where node-rdkafka is found. */
const bundle = fileURLToPath(new URL("../node_modules/.exit-script.mjs", import.meta.url));

let cluster: KafkaCluster;

beforeAll(async () => {
  await build({
    entryPoints: [fileURLToPath(new URL("exit-script.ts", import.meta.url))],
    outfile: bundle,
    bundle: true,
    platform: "node",
    format: "esm",
    external: ["node-rdkafka", "node-rdkafka/*"],
    alias: { "@krabka/core": fileURLToPath(new URL("../../core/src/index.ts", import.meta.url)) },
  });
  cluster = await startKafka({ proxied: true });
});
afterAll(async () => {
  await cluster.close();
  await rm(bundle, { force: true });
});

const leading = async (): Promise<ChildProcessByStdio<Writable, Readable, null>> => {
  const child = spawn(process.execPath, [bundle, cluster.proxiedBootstrap ?? ""], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [said] = await once(child.stdout, "data");
  expect(String(said)).toBe("committed\n");
  return child;
};

const endsByItself = async (child: ChildProcessByStdio<Writable, Readable, null>): Promise<void> => {
  const startedAtMs = performance.now();
  const timer = setTimeout(() => child.kill("SIGKILL"), 2 * LIMIT_MS);
  child.stdin.end();
  const [code, signal] = await once(child, "exit");
  clearTimeout(timer);
  expect([code, signal]).toEqual([0, null]);
  expect(performance.now() - startedAtMs).toBeLessThan(LIMIT_MS);
};

describe("J1: a process that leads, writes and closes", () => {
  it("ends by itself", async () => {
    await endsByItself(await leading());
  });

  it("ends by itself when no broker answers any more", async () => {
    const child = await leading();
    cluster.faults?.blackhole(true);
    try {
      await endsByItself(child);
    } finally {
      cluster.faults?.reset();
    }
  });
});
