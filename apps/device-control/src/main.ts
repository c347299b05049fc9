import { randomUUID } from "node:crypto";
import { connectOrStart } from "@krabka/tooling-kafka";
import { Kafka, logLevel } from "kafkajs";
import { readLog } from "./read-log.js";
import { Run } from "./run.js";
import { faultsOf, render, type Summary } from "./summary.js";
import { checkTermOrder } from "./term-order.js";

const LEASE_MS = 2_000;
const PARTITIONS = 3;
const LIMIT_MS = 120_000;

const say = (line: string) => console.log(line);

say(process.env.KRABKA_BOOTSTRAP ? `Using Kafka at ${process.env.KRABKA_BOOTSTRAP}` : "Starting a Kafka broker ...");
await using cluster = await connectOrStart();
const topic = `device-commands-${randomUUID().slice(0, 8)}`;
const kafka = new Kafka({
  clientId: "device-control",
  brokers: cluster.bootstrap.split(","),
  logLevel: logLevel.NOTHING,
});
const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }], waitForLeaders: true });
await admin.disconnect();

const run = new Run({ bootstrap: cluster.bootstrap, topic, leaseMs: LEASE_MS, say });
const outOfTime = new Promise<never>((_, reject) => {
  setTimeout(() => reject(new Error(`The run did not end within ${LIMIT_MS} ms`)), LIMIT_MS).unref();
});
try {
  const result = await Promise.race([run.play(), outOfTime]);
  const log = await Promise.race([readLog(kafka, topic, PARTITIONS), outOfTime]);
  const summary: Summary = { leaseMs: LEASE_MS, ...result, logged: log.length, violations: checkTermOrder(log) };
  say(`\n${render(summary)}`);
  const faults = faultsOf(summary);
  for (const fault of faults) say(`FAULT: ${fault}`);
  say(faults.length === 0 ? "\nAll guarantees held." : "\nA guarantee was broken.");
  process.exitCode = faults.length === 0 ? 0 : 1;
} finally {
  run.kill();
}
