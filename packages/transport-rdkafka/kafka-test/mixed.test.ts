import { setTimeout as sleep } from "node:timers/promises";
import {
  CoordinationClient,
  FenceGate,
  type FencingToken,
  type Leadership,
  MemberId,
  systemClock,
} from "@krabka/client";
import { encodeUtf8, KrabkaError, Role, type Transport, type WriterSession } from "@krabka/core";
import { ForeignMember } from "@krabka/tooling-foreign-member";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { RdKafkaTransport } from "../src/index.js";
import { type RdKafkaHarness, startHarness } from "./rdkafka-harness.js";

type Kind = "kafkajs with appends" | "kafkajs with transactions" | "rdkafka";

const COORDINATION = { name: "coordination", partitions: 4 };
const LEASE_MS = 1_500;
const SESSION = { transactionTimeoutMs: 10_000, mayMint: () => true };
const APPENDS: Kind = "kafkajs with appends";
const TRANSACTIONS: Kind = "kafkajs with transactions";
const RDKAFKA: Kind = "rdkafka";
/** Each kind after each other one. */
const ORDER = [APPENDS, RDKAFKA, TRANSACTIONS, APPENDS, TRANSACTIONS, RDKAFKA, APPENDS];
const SUCCESSIONS = ORDER.slice(1).map((later, index) => [ORDER[index] as Kind, later] as const);

let harness: RdKafkaHarness;
let opened = 0;
const ends: (() => Promise<void>)[] = [];

beforeAll(async () => {
  harness = await startHarness();
});
afterEach(async () => {
  await Promise.all(ends.splice(0).map((end) => end()));
});
afterAll(async () => {
  await harness.close();
});

/** Every transport has a client id of its own. */
const openTransport = (kind: Kind): Transport => {
  opened += 1;
  const { bootstrap } = harness.cluster;
  const { name: topic, partitions } = COORDINATION;
  if (kind === RDKAFKA) {
    const brokers = { "bootstrap.servers": bootstrap, "client.id": `rdkafka-${opened}` };
    return new RdKafkaTransport({ brokers, topic, partitions, describer: harness.describer(COORDINATION) });
  }
  const kafka = { brokers: bootstrap.split(","), clientId: `kafkajs-${opened}`, logLevel: logLevel.NOTHING };
  return new KafkaJsTransport({ kafka, topic, partitions, leaseRecords: kind === APPENDS ? "append" : "transaction" });
};

const valuesIn = async (topic: string): Promise<readonly string[]> =>
  (await harness.readCommitted({ topic, partition: 0 })).map(({ value }) =>
    new TextDecoder().decode(value ?? undefined),
  );

async function mint(transport: Transport, role: Role): Promise<WriterSession> {
  for (;;) {
    try {
      return await transport.openSession(role, SESSION);
    } catch (error) {
      if (!KrabkaError.is(error) || error.code !== "BUSY") throw error;
      await sleep(5);
    }
  }
}

it.each(SUCCESSIONS)(
  "A12: a session of %s is refused once %s has minted, whatever their client ids",
  async (former, later) => {
    const topic = `data-${SUCCESSIONS.findIndex((pair) => pair[0] === former && pair[1] === later)}`;
    await harness.createTopic(topic, 1);
    const role = Role.of(`sessions-${topic}`);
    const record = (value: string) => ({ topic, partition: 0, key: null, value: encodeUtf8(value), headers: [] });
    const [first, second] = [openTransport(former), openTransport(later)];
    ends.push(
      () => first.close(),
      () => second.close(),
    );
    await Promise.all([first.prepare(), second.prepare()]);
    const deposed = await mint(first, role);
    expect(await deposed.commit([record("first")])).toMatchObject({ status: "committed" });
    const leading = await mint(second, role);
    expect(leading.pair.producerId).toBe(deposed.pair.producerId);
    expect(leading.pair.epoch).toBeGreaterThan(deposed.pair.epoch);
    expect(await deposed.commit([record("stale")])).toMatchObject({ status: "fenced" });
    expect(await leading.commit([record("second")])).toMatchObject({ status: "committed" });
    if (former === APPENDS) {
      const [target, stale] = [{ topic, partition: 0 }, record("stale append")];
      expect(await deposed.append(target, [stale])).toMatchObject({ status: "fenced" });
    }
    expect(await valuesIn(topic)).toEqual(["first", "second"]);
  },
);

/** A member that can be stopped: its time stands still, so it does not notice that its lease ran out. */
class Member {
  readonly id: MemberId;
  readonly #kind: Kind;
  #client: CoordinationClient;
  #stoppedAtMs: number | undefined;

  constructor(kind: Kind) {
    this.#kind = kind;
    this.id = MemberId.of(kind);
    this.#client = this.#open();
    ends.push(() => this.#client.close());
  }

  acquire(role: Role): Promise<Leadership> {
    return this.#client.acquire(role, this.id);
  }

  stop(): void {
    this.#stoppedAtMs = systemClock.monotonicMs();
  }

  resume(): void {
    this.#stoppedAtMs = undefined;
  }

  async restart(): Promise<void> {
    await this.#client.close();
    this.#client = this.#open();
  }

  #open(): CoordinationClient {
    const clock = { ...systemClock, monotonicMs: () => this.#stoppedAtMs ?? systemClock.monotonicMs() };
    return new CoordinationClient(openTransport(this.#kind), { leaseMs: LEASE_MS, autoRenew: false, clock });
  }
}

it("A12: leaders on all transports succeed each other, stopped, restarted or resigned; each former one is refused and can lead again", async () => {
  const role = Role.of("contested");
  const topic = "contested-data";
  await harness.createTopic(topic, 1);
  const observer = new CoordinationClient(openTransport(APPENDS), { leaseMs: LEASE_MS });
  ends.push(() => observer.close());
  await observer.describe(role);
  const reader = await ForeignMember.start({ bootstrap: harness.cluster.bootstrap, topic: COORDINATION.name, role });
  ends.push(() => reader.close());
  const members = new Map([APPENDS, TRANSACTIONS, RDKAFKA].map((kind) => [kind, new Member(kind)]));
  const memberOf = (kind: Kind) => members.get(kind) as Member;
  const registered = async (member: MemberId, after: bigint) => {
    for await (const { roster } of observer.observe(role)) {
      if (roster.some((entry) => entry.member === member && entry.joinOffset > after)) return;
    }
  };

  const gate = FenceGate.inMemory();
  const tokens: FencingToken[] = [];
  const written: string[] = [];
  const lead = async (leadership: Leadership) => {
    const { token } = leadership;
    await gate.admit(token);
    for (const older of tokens) expect(gate.wouldAdmit(older), `${older}, ${token}`).toBe(false);
    tokens.push(token);
    written.push(`${leadership.member} as ${token}`);
    await leadership.write({ topic, value: `${leadership.member} as ${token}` });
  };

  let leader = await memberOf(ORDER[0] as Kind).acquire(role);
  await lead(leader);
  for (const way of ["stopped", "restarted", "resigned"] as const) {
    for (const [former, later] of SUCCESSIONS) {
      const won = memberOf(later).acquire(role);
      await registered(memberOf(later).id, leader.token.term);
      // A holder that renews is not challenged, whoever stands by.
      await leader.renew();
      expect(await leader.verify()).toBe(true);
      const deposed = leader;
      if (way === "resigned") await deposed.resign();
      else memberOf(former).stop();
      leader = await won;
      expect(leader.member).toBe(memberOf(later).id);
      await expect(deposed.write({ topic, value: `stale ${former}` })).rejects.toMatchObject({
        code: expect.stringMatching(way === "resigned" ? /^NOT_LEADER$/ : /^FENCED$/),
      });
      memberOf(former).resume();
      if (way === "restarted") await memberOf(former).restart();
      await lead(leader);
    }
  }
  expect(await valuesIn(topic)).toEqual(written);
  expect(tokens.length).toBe(1 + 3 * SUCCESSIONS.length);
  // Nothing that any of them wrote made the strict reader give up.
  const { registrations, leases } = await reader.report();
  expect(registrations).toBeGreaterThanOrEqual(tokens.length);
  expect(leases).toBeGreaterThanOrEqual(2 * tokens.length - 1);
});

it("a member on rdkafka follows a foreign holder whose epoch rises with each renewal, and each is refused after the other", async () => {
  const role = Role.of("shared");
  const topic = "shared-data";
  await harness.createTopic(topic, 1);
  const member = new Member(RDKAFKA);
  const describer = openTransport(RDKAFKA);
  ends.push(() => describer.close());
  await describer.prepare();
  const timings = { leaseMs: LEASE_MS, renewMs: 200, staggerMs: LEASE_MS / 6 };
  const { bootstrap } = harness.cluster;
  const where = { bootstrap, topic: COORDINATION.name, role, member: "foreign" };
  const foreign = await ForeignMember.start({ ...where, ...timings });
  ends.push(() => foreign.close());
  await foreign.next("leading");
  let led = false;
  const won = member.acquire(role).finally(() => {
    led = true;
  });
  for (let i = 0; i < 20; i++) await foreign.next("renewed");
  expect(led).toBe(false);
  await foreign.resign();
  const leadership = await won;
  await leadership.write({ topic, value: "ours" });
  expect(await foreign.staleWrite(topic, "stale")).toMatchObject({
    event: "refused",
    exception: expect.stringMatching(/^(ProducerFencedException|InvalidProducerEpochException)$/),
  });
  foreign.compete();
  await foreign.next("registered");
  member.stop();
  const leading = await foreign.next("leading");
  expect(leading.offset).toBeGreaterThan(leadership.token.term);
  await expect(leadership.write({ topic, value: "stale" })).rejects.toMatchObject({ code: "FENCED" });
  expect(await foreign.write(topic, "foreign")).toMatchObject({ event: "written" });
  expect(await valuesIn(topic)).toEqual(["ours", "foreign"]);
});
