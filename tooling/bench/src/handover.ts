import { randomUUID } from "node:crypto";
import { Role } from "@krabka/client";
import type { KafkaCluster } from "@krabka/tooling-kafka";
import { startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { Kafka, logLevel } from "kafkajs";
import { printJson, printTable, type Series } from "./figures.js";
import { HandoverLine } from "./handover-line.js";
import { RawHandover } from "./raw-handover.js";

const WARM_UP = 20;
const HANDOVERS = 100;
const INIT_PRODUCER_ID = 22;

const kafkaTransport = (bootstrap: string) =>
  new KafkaJsTransport({ kafka: { brokers: bootstrap.split(","), logLevel: logLevel.NOTHING } });

/** Graceful handovers with three standbys, in turn with the raw floor of the same run. */
export async function measureHandover(cluster: KafkaCluster, json: boolean): Promise<void> {
  const kafka = new Kafka({ brokers: cluster.bootstrap.split(","), logLevel: logLevel.NOTHING });
  const topic = `raw-${randomUUID()}`;
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const raw = new RawHandover(cluster.bootstrap.split(","), Role.of(`raw-${randomUUID()}`), topic);
  await raw.prepare();
  const line = new HandoverLine(() => kafkaTransport(cluster.bootstrap));
  await line.prepare();
  const floor: Series & { samplesMs: number[] } = { name: "raw floor (fenced appends)", samplesMs: [] };
  const product: Series & { samplesMs: number[] } = { name: "resign() to acquire()", samplesMs: [] };
  for (let i = 0; i < WARM_UP + HANDOVERS; i++) {
    const [rawMs, productMs] = [await raw.once(), await line.once()];
    if (i < WARM_UP) continue;
    floor.samplesMs.push(rawMs);
    product.samplesMs.push(productMs);
  }
  await Promise.all([raw.close(), line.close()]);
  const mints = await countMints(cluster.bootstrap);
  printTable([floor, product]);
  console.log(
    `InitProducerId requests a handover, counted over ${mints.handovers}: ${mints.requests / mints.handovers}`,
  );
  if (json) printJson("P1", product, floor);
}

/** Counted apart from the timing, since the counting proxy costs time. */
async function countMints(bootstrap: string): Promise<{ requests: number; handovers: number }> {
  await using proxy = await startFaultProxy({ bootstrap });
  const line = new HandoverLine(() => kafkaTransport(proxy.bootstrap));
  await line.prepare();
  const before = proxy.requests(INIT_PRODUCER_ID);
  for (let i = 0; i < HANDOVERS; i++) await line.once();
  const requests = proxy.requests(INIT_PRODUCER_ID) - before;
  await line.close();
  return { requests, handovers: HANDOVERS };
}
