import { randomUUID } from "node:crypto";
import { CoordinationClient, type Leadership, MemberId, Role } from "@krabka/client";
import type { KafkaCluster } from "@krabka/tooling-kafka";
import { startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { Kafka, logLevel } from "kafkajs";
import { printJson, printTable, type Series } from "./figures.js";
import { RawHandover } from "./raw-handover.js";

const WARM_UP = 20;
const HANDOVERS = 100;
const MEMBERS = 4;
const INIT_PRODUCER_ID = 22;

/** Members of one role, each with a client of its own; the next in line takes over when the leader resigns. */
class Line {
  readonly #clients: readonly CoordinationClient[];
  readonly #role = Role.of(`handover-${randomUUID()}`);
  readonly #line: { readonly index: number; readonly won: Promise<{ leadership: Leadership; atMs: number }> }[] = [];
  #members = 0;

  constructor(bootstrap: string) {
    this.#clients = Array.from({ length: MEMBERS }, () => {
      const transport = new KafkaJsTransport({ kafka: { brokers: bootstrap.split(","), logLevel: logLevel.NOTHING } });
      return new CoordinationClient(transport, { leaseMs: 30_000 });
    });
  }

  async prepare(): Promise<void> {
    for (let index = 0; index < MEMBERS; index++) await this.#enter(index);
  }

  /** Milliseconds from the call of `resign` to the moment at which the successor's `acquire` has resolved. */
  async once(): Promise<number> {
    const first = this.#line.shift();
    const { leadership } = await (first as NonNullable<typeof first>).won;
    const next = this.#line[0] as NonNullable<typeof first>;
    const startedAtMs = performance.now();
    const resigned = leadership.resign();
    const { atMs } = await next.won;
    await resigned;
    await this.#enter((first as NonNullable<typeof first>).index);
    return atMs - startedAtMs;
  }

  async close(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
  }

  async #enter(index: number): Promise<void> {
    const client = this.#clients[index] as CoordinationClient;
    this.#members += 1;
    const name = `member-${this.#members}`;
    const won = client
      .acquire(this.#role, MemberId.of(name))
      .then((leadership) => ({ leadership, atMs: performance.now() }));
    won.catch(() => undefined);
    this.#line.push({ index, won });
    for await (const { roster } of client.observe(this.#role)) {
      if (roster.some(({ member }) => member === name)) return;
    }
  }
}

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
  const line = new Line(cluster.bootstrap);
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
  const line = new Line(proxy.bootstrap);
  await line.prepare();
  const before = proxy.requests(INIT_PRODUCER_ID);
  for (let i = 0; i < HANDOVERS; i++) await line.once();
  const requests = proxy.requests(INIT_PRODUCER_ID) - before;
  await line.close();
  return { requests, handovers: HANDOVERS };
}
