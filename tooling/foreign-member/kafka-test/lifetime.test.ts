import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Kafka, logLevel } from "kafkajs";
import { expect, inject, it } from "vitest";
import { compile } from "../src/compile.js";

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

it("ends when the process that started it is killed", async () => {
  const { java, classPath } = await compile(process.env);
  const topic = `state-${randomUUID().slice(0, 8)}`;
  const admin = new Kafka({ brokers: inject("kafkaBootstrap").split(","), logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const timings = ["3000", "1000", "500"];
  const args = ["-cp", classPath, "ForeignMember", "reader", inject("kafkaBootstrap"), topic, "role", "", ...timings];
  // Tells the process id once the program has answered, so that it reads and waits for more.
  const script = `
    const child = require("node:child_process").spawn(${JSON.stringify(java)}, ${JSON.stringify(args)}, { stdio: "pipe" });
    child.stdin.write("report\\n");
    child.stdout.once("data", () => console.log(child.pid));
    setInterval(() => {}, 1000);
  `;
  const parent = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  const [said] = await once(parent.stdout, "data");
  const pid = Number(String(said));
  expect(isAlive(pid)).toBe(true);
  parent.kill("SIGKILL");
  await once(parent, "exit");
  for (const startedAtMs = performance.now(); isAlive(pid) && performance.now() - startedAtMs < 10_000; )
    await sleep(20);
  expect(isAlive(pid)).toBe(false);
});

it("a Java without a compiler is told together with what to install", async () => {
  const { PATH: _, ...rest } = process.env;
  await expect(compile({ ...rest, PATH: "/nowhere", JAVA_HOME: "" })).rejects.toThrow(/Install a JDK 17/);
});
