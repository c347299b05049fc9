import { type ChildProcess, fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { KafkaCluster } from "@krabka/tooling-kafka";
import { Kafka, logLevel } from "kafkajs";
import { percentile, printTable } from "./figures.js";

const LEASE_MS = 500;
const RUNS = 20;
/** What is allowed beyond the lease in most runs. */
const GRACE_MS = 150;

const heard = async (child: ChildProcess, what: string): Promise<number> => {
  for (;;) {
    const [message] = await once(child, "message");
    if (message === what) return performance.now();
  }
};

/** From `kill -9` of the leader to the successor's first guarded write being committed, as processes. */
export async function measureFailover(cluster: KafkaCluster, json: boolean): Promise<void> {
  const topic = `failover-${randomUUID()}`;
  const admin = new Kafka({ brokers: cluster.bootstrap.split(","), logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const role = `failover-${randomUUID()}`;
  const module = fileURLToPath(new URL("failover-member.js", import.meta.url));
  let members = 0;
  const start = () => {
    members += 1;
    return fork(module, [cluster.bootstrap, role, `member-${members}`, topic, String(LEASE_MS)]);
  };
  const samplesMs: number[] = [];
  let leader = start();
  await heard(leader, "written");
  for (let i = 0; i < RUNS; i++) {
    const successor = start();
    await heard(successor, "registered");
    // Anywhere inside the renewal period.
    await sleep(LEASE_MS + Math.random() * (LEASE_MS / 3));
    const written = heard(successor, "written");
    const killedAtMs = performance.now();
    leader.kill("SIGKILL");
    samplesMs.push((await written) - killedAtMs);
    leader = successor;
  }
  leader.kill("SIGKILL");
  printTable([{ name: `kill -9 to first guarded write, lease ${LEASE_MS} ms`, samplesMs }]);
  const sorted = [...samplesMs].sort((a, b) => a - b);
  console.log(`all runs: ${sorted.map((ms) => ms.toFixed(0)).join(" ")}`);
  const inTime = samplesMs.filter((ms) => ms <= LEASE_MS + GRACE_MS).length;
  console.log(`within lease + ${GRACE_MS} ms: ${inTime} of ${RUNS}`);
  if (!json) return;
  const value = percentile(samplesMs, 0.5);
  console.log(JSON.stringify({ id: "P2", value, baseline: LEASE_MS, ratio: value / LEASE_MS, unit: "ms", n: RUNS }));
}
