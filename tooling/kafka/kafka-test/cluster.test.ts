import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import { build } from "esbuild";
import { type Admin, Kafka, logLevel } from "kafkajs";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

const LIMIT_MS = 20_000;

function clientOf({ bootstrap }: KafkaCluster): Kafka {
  return new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100 } });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

// Folders of clusters that others run at the same time do not lie here.
const temporary = mkdtempSync(join(tmpdir(), "krabka-test-"));
vi.stubEnv("TMPDIR", temporary);

afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(temporary, { recursive: true });
});

const folders = () => readdirSync(temporary).filter((name) => name.startsWith("krabka-kafka-"));

/** Resolves when the condition holds; fails a test that waits too long. */
async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAtMs = performance.now() + LIMIT_MS;
  while (!(await condition())) {
    if (performance.now() > giveUpAtMs) throw new Error(`not so after ${LIMIT_MS} ms: ${condition}`);
    await sleep(50);
  }
}

describe("a cluster of one broker", () => {
  test("serves, and leaves neither a process nor a folder when closed twice", async () => {
    const cluster = await startKafka();
    const [broker] = cluster.brokers;
    if (broker?.pid === undefined) throw new Error("no broker");
    const { pid } = broker;
    const folder = dirname(dirname(broker.logFile));
    expect(cluster.bootstrap).toBe(`127.0.0.1:${broker.port}`);
    const admin = clientOf(cluster).admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: "t", numPartitions: 2 }], waitForLeaders: true });
    await admin.disconnect();
    expect(existsSync(folder)).toBe(true);
    await Promise.all([cluster.close(), cluster.close()]);
    await cluster.close();
    expect(isAlive(pid)).toBe(false);
    expect(existsSync(folder)).toBe(false);
  });

  test("keeps its topics over a graceful stop and a new start", async () => {
    const cluster = await startKafka();
    try {
      const [broker] = cluster.brokers;
      const admin = clientOf(cluster).admin();
      await admin.connect();
      await admin.createTopics({ topics: [{ topic: "kept", numPartitions: 1 }], waitForLeaders: true });
      await admin.disconnect();
      await broker?.stop();
      expect(broker?.pid).toBeUndefined();
      await broker?.start();
      const again = clientOf(cluster).admin();
      await again.connect();
      expect(await again.listTopics()).toContain("kept");
      await again.disconnect();
    } finally {
      await cluster.close();
    }
  });

  test("that cannot boot is reported with the end of its log, and leaves nothing", async () => {
    const settings = { "log.segment.bytes": "no number" };
    await expect(startKafka({ settings })).rejects.toThrow(/broker 1 could not format.*log\.segment\.bytes/s);
    expect(folders()).toEqual([]);
  });

  test("whose start is aborted leaves nothing", async () => {
    const aborted = new AbortController();
    const started = startKafka({ signal: aborted.signal });
    await until(() => folders().length > 0);
    aborted.abort();
    await expect(started).rejects.toThrow(/abort/i);
    expect(folders()).toEqual([]);
  });
});

describe("a program that is killed with SIGKILL", () => {
  let program: ChildProcess | undefined;

  afterAll(() => program?.kill("SIGKILL"));

  test("takes its brokers and their folder along", async () => {
    const source = fileURLToPath(new URL("../src/main.ts", import.meta.url));
    const { outputFiles } = await build({
      entryPoints: [source],
      bundle: true,
      write: false,
      platform: "node",
      format: "esm",
      target: "node20",
    });
    const child = spawn(process.execPath, ["--input-type=module", "-", "--brokers", "1"], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    program = child;
    child.stdin.end(outputFiles[0]?.text);
    let printed = "";
    for await (const chunk of child.stdout) {
      printed += String(chunk);
      if (printed.includes("\n")) break;
    }
    const [, port] = /^KRABKA_BOOTSTRAP=127\.0\.0\.1:(\d+)\n/.exec(printed) ?? [];
    expect(port).toBeDefined();
    const [own = "none"] = folders();
    const processes = readdirSync(join(temporary, own, "processes")).map(Number);
    expect(processes.length).toBe(1);
    expect(processes.every(isAlive)).toBe(true);

    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
    await until(() => !processes.some(isAlive));
    await until(() => folders().length === 0);
  });
});

describe("a cluster of three brokers", () => {
  let cluster: KafkaCluster;
  let admin: Admin;

  beforeAll(async () => {
    cluster = await startKafka({ brokers: 3 });
    admin = clientOf(cluster).admin();
    await admin.connect();
    await admin.createTopics({
      topics: [{ topic: "replicated", numPartitions: 3, replicationFactor: 3 }],
      waitForLeaders: true,
    });
  });

  afterAll(async () => {
    await admin?.disconnect();
    await cluster?.close();
  });

  const inSync = async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: ["replicated"] });
    return topics.flatMap(({ partitions }) => partitions.map(({ isr }) => isr.length));
  };

  test("takes writes while one is killed, and has it in sync again after its restart", async () => {
    const producer = clientOf(cluster).producer();
    await producer.connect();
    await until(async () => (await inSync()).every((replicas) => replicas === 3));
    await cluster.brokers[2]?.kill();
    expect(cluster.brokers[2]?.pid).toBeUndefined();
    await until(async () => (await inSync()).every((replicas) => replicas === 2));
    const messages = [0, 1, 2].map((partition) => ({ partition, value: "x" }));
    await producer.send({ topic: "replicated", acks: -1, messages });
    await cluster.brokers[2]?.start();
    await until(async () => (await inSync()).every((replicas) => replicas === 3));
    await producer.disconnect();
  });

  test("has a paused broker that keeps its connections and answers after it resumes", async () => {
    const [, broker] = cluster.brokers;
    if (broker === undefined) throw new Error("no broker");
    const single = new Kafka({ brokers: [`127.0.0.1:${broker.port}`], logLevel: logLevel.NOTHING }).admin();
    await single.connect();
    broker.pause();
    let answered = false;
    const listed = single.listTopics().then(() => {
      answered = true;
    });
    await sleep(300);
    expect(answered).toBe(false);
    broker.resume();
    await listed;
    await single.disconnect();
  });
});
