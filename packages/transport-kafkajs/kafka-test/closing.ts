import { setTimeout as sleep } from "node:timers/promises";
import { encodeUtf8, KrabkaError, partitionForRole, Role, type Transport, type WriterSession } from "@krabka/core";
import { SeededRandom } from "@krabka/testing";
import { type KafkaCluster, startFaultProxy, startKafka } from "@krabka/tooling-kafka";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Footprint, footprint } from "./footprint.js";
import { silentListener } from "./silent-listener.js";

export interface ClosingSubject {
  readonly name: string;
  /** Of topic "closing" with its default number of partitions. */
  readonly transportTo: (bootstrap: string) => Transport;
  /** How many transports are opened and closed; `KRABKA_CLOSE_CYCLES` wins. */
  readonly cycles: number;
}

const TOPIC = "closing";
/** After these all pools and caches have their size. */
const WARM_UP_CYCLES = 40;
/** Cycles that run beside each other. */
const LANES = 6;
const CLOSE_LIMIT_MS = 5_000;
const SETTLE_LIMIT_MS = 10_000;
/** A closed transport that is kept weighs 17 kB (measured), and an open native producer about 0.8 MB. */
const HEAP_BYTES_A_CYCLE = 10_000;
const RESIDENT_BYTES_A_CYCLE = 300_000;
/** Longer than all the work takes, so that some cycles are closed after it. */
const WORK_MS = 400;
const NOBODY = "127.0.0.1:1";
const MOMENTS = [
  "during the work",
  "during the work",
  "while it connects",
  "after a fence",
  "while no broker answers",
  "where nobody listens",
] as const;
const CLOSINGS = ["once", "twice at once", "twice in a row"] as const;

interface Cycle {
  readonly moment: (typeof MOMENTS)[number];
  readonly afterMs: number;
  readonly closed: (typeof CLOSINGS)[number];
}

const drawCycle = (random: SeededRandom): Cycle => {
  const moment = random.pick(MOMENTS);
  const afterMs = random.between(0, moment === "while it connects" ? 10 : WORK_MS);
  return { moment, afterMs, closed: random.pick(CLOSINGS) };
};

const value = encodeUtf8("v");

const recordOf = (role: Role) => ({ topic: TOPIC, partition: partitionForRole(role), key: value, value, headers: [] });

const mint = async (transport: Transport, role: Role): Promise<WriterSession> => {
  for (;;) {
    try {
      return await transport.openSession(role, { transactionTimeoutMs: 10_000, mayMint: () => true });
    } catch (error) {
      if (!KrabkaError.is(error) || error.code !== "BUSY") throw error;
      await sleep(5);
    }
  }
};

/** What a member does: opens, follows, registers, leads, writes. */
const lead = async (transport: Transport, role: Role): Promise<WriterSession> => {
  await transport.prepare();
  const feed = transport.follow(role, silentListener);
  await feed.sync();
  const record = recordOf(role);
  await transport.appendUnfenced(record, [record]);
  const session = await mint(transport, role);
  for (let write = 0; write < 5; write++) await session.commit([record]);
  await feed.sync();
  return session;
};

const close = async (transport: Transport, closed: Cycle["closed"]): Promise<void> => {
  const startedAtMs = performance.now();
  const first = transport.close();
  if (closed === "twice at once") await transport.close();
  await first;
  if (closed === "twice in a row") await transport.close();
  expect(performance.now() - startedAtMs).toBeLessThan(CLOSE_LIMIT_MS);
};

class Stage {
  readonly #subject: ClosingSubject;
  readonly #bootstrap: string;
  #roles = 0;

  constructor(subject: ClosingSubject, bootstrap: string) {
    this.#subject = subject;
    this.#bootstrap = bootstrap;
  }

  /** Runs cycles beside each other, as many as there are lanes. */
  async run(cycles: readonly Cycle[]): Promise<void> {
    const rest = [...cycles];
    const lane = async (): Promise<void> => {
      for (let cycle = rest.shift(); cycle !== undefined; cycle = rest.shift()) {
        try {
          await this.#run(cycle);
        } catch (cause) {
          rest.length = 0;
          throw new Error(`A cycle failed: ${JSON.stringify(cycle)}`, { cause });
        }
      }
    };
    const lanes = await Promise.allSettled(Array.from({ length: LANES }, lane));
    const failed = lanes.find((ended): ended is PromiseRejectedResult => ended.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async #run(cycle: Cycle): Promise<void> {
    if (cycle.moment === "after a fence") await this.#fenced(cycle);
    else if (cycle.moment === "while no broker answers") await this.#unanswered(cycle);
    else await this.#interrupted(cycle, cycle.moment === "where nobody listens" ? NOBODY : this.#bootstrap);
  }

  #role(): Role {
    this.#roles += 1;
    return Role.of(`role-${this.#roles}`);
  }

  async #interrupted({ afterMs, closed }: Cycle, bootstrap: string, before: () => void = () => {}): Promise<void> {
    const transport = this.#subject.transportTo(bootstrap);
    const ended = endOf(lead(transport, this.#role()).then(() => "led"));
    await sleep(afterMs);
    before();
    await close(transport, closed);
    expect(["led", "CLOSED"]).toContain(await ended);
  }

  async #unanswered(cycle: Cycle): Promise<void> {
    await using proxy = await startFaultProxy({ bootstrap: this.#bootstrap });
    await this.#interrupted(cycle, proxy.bootstrap, () => proxy.blackhole(true));
  }

  async #fenced({ closed }: Cycle): Promise<void> {
    const [one, rival] = [this.#subject.transportTo(this.#bootstrap), this.#subject.transportTo(this.#bootstrap)];
    const role = this.#role();
    const deposed = await lead(one, role);
    await mint(rival, role);
    const ended = endOf(deposed.commit([recordOf(role)]).then(({ status }) => status));
    if (closed === "once") expect(await ended).toBe("fenced");
    await close(one, closed);
    expect(["fenced", "aborted", "unknown", "CLOSED"]).toContain(await ended);
    await close(rival, closed);
  }
}

/** How a call ended: what it gave, or the code of its error. */
const endOf = (call: Promise<string>): Promise<unknown> =>
  call.catch((error: unknown) => (KrabkaError.is(error) ? error.code : error));

/** Kinds of handles of which there are more than before. */
const moreHandles = (now: Footprint, before: Footprint): readonly string[] =>
  Object.keys(now.handles).filter((kind) => (now.handles[kind] ?? 0) > (before.handles[kind] ?? 0));

/** What is held once all that was let go has ended. */
const settled = async (before: Footprint): Promise<Footprint> => {
  const giveUpAtMs = performance.now() + SETTLE_LIMIT_MS;
  for (;;) {
    const now = await footprint();
    const isDown = now.threads <= before.threads && moreHandles(now, before).length === 0;
    if (isDown || performance.now() > giveUpAtMs) return now;
  }
};

const megabytes = (bytes: number): string => `${(bytes / 1_000_000).toFixed(1)} MB`;

/** Declares the tests of `close`. The bodies are the same for every transport. */
export const describeClosing = (subject: ClosingSubject): void => {
  const count = Number(process.env.KRABKA_CLOSE_CYCLES) || subject.cycles;

  describe(`closing ${subject.name}`, () => {
    let cluster: KafkaCluster;
    beforeAll(async () => {
      cluster = await startKafka();
    });
    afterAll(() => cluster.close());

    const title = `J1, J2: ${count} transports that are closed at random points end without a crash, a hang or a leak`;
    it(title, { timeout: 60_000 + 1_000 * count }, async ({ onTestFailed }) => {
      const seed = Number(process.env.KRABKA_CLOSE_SEED) || Date.now();
      onTestFailed(() => console.log(`The same cycles come again with KRABKA_CLOSE_SEED=${seed}`));
      const random = new SeededRandom(seed);
      const cycles = (length: number): Cycle[] => Array.from({ length }, () => drawCycle(random));
      const stage = new Stage(subject, cluster.bootstrap);
      await stage.run(cycles(WARM_UP_CYCLES));
      const before = await footprint();
      const startedAtMs = performance.now();
      await stage.run(cycles(count));
      const tookMs = performance.now() - startedAtMs;
      const after = await settled(before);
      const heapBytes = after.heapBytes - before.heapBytes;
      const residentBytes = after.residentBytes - before.residentBytes;
      console.log(
        `${subject.name}: ${count} closed in ${(tookMs / 1_000).toFixed(1)} s; ${before.threads} threads before, ` +
          `${after.threads} after; heap +${megabytes(heapBytes)}, resident +${megabytes(residentBytes)}`,
      );
      expect(after.threads).toBeLessThanOrEqual(before.threads);
      expect(moreHandles(after, before)).toEqual([]);
      expect(heapBytes).toBeLessThan(HEAP_BYTES_A_CYCLE * count);
      expect(residentBytes).toBeLessThan(RESIDENT_BYTES_A_CYCLE * count);
    });
  });
};
