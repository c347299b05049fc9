import { setTimeout as sleep } from "node:timers/promises";
import {
  type CoordinationRecord,
  encodeEntry,
  type FeedListener,
  KrabkaError,
  MemberId,
  NO_ATTRIBUTES,
  type RawRecord,
  Role,
  RoleState,
  type WriterSession,
} from "@krabka/core";
import { type KafkaCluster, startKafka } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { KafkaJsTransport } from "../src/index.js";

const TOPIC = "compacted";
const HOME = { topic: TOPIC, partition: 0 };
const ROLE = Role.of("controller");

const registration = (member: string): RawRecord =>
  encodeEntry({
    kind: "registration",
    role: ROLE,
    member: MemberId.of(member),
    registeredAtMs: 1n,
    attributes: NO_ATTRIBUTES,
  });

const removal = (member: string): RawRecord =>
  encodeEntry({ kind: "registration-removed", role: ROLE, member: MemberId.of(member) });

const lease = ({ pair }: WriterSession, deadlineMs: number): RawRecord =>
  encodeEntry({
    kind: "lease",
    role: ROLE,
    member: MemberId.of("leader"),
    pair,
    term: 0n,
    grantedAtMs: 1n,
    deadlineMs: BigInt(deadlineMs),
    attributes: NO_ATTRIBUTES,
  });

/** What a follower sees, and whether it ever lost its place. */
class Witness implements FeedListener {
  state = RoleState.empty(ROLE);
  resets = 0;
  received = 0;
  onRecords(records: readonly CoordinationRecord[]): void {
    this.received += records.length;
    this.state = this.state.fold(records);
  }
  onUncommitted(): void {}
  onReset(): void {
    this.resets += 1;
    this.state = RoleState.empty(ROLE);
  }
  onMalformed(): void {}
  onError(): void {}
}

const facts = ({ roster, lease: held }: RoleState) => ({
  roster: roster.map(({ member, joinOffset }) => [member, joinOffset]),
  lease: held && [held.member, held.token.toString(), held.deadlineMs, held.offset],
});

describe("kafkajs on a log that is cleaned eagerly", () => {
  let cluster: KafkaCluster;
  let admin: kafkajs.Admin;
  const transports: KafkaJsTransport[] = [];

  const transport = (): KafkaJsTransport => {
    const kafka = { brokers: cluster.bootstrap.split(","), logLevel: kafkajs.logLevel.NOTHING };
    const opened = new KafkaJsTransport({ kafka, topic: TOPIC, partitions: 1 });
    transports.push(opened);
    return opened;
  };

  const mint = async (): Promise<WriterSession> => {
    for (;;) {
      try {
        return await transport().openSession(ROLE, { transactionTimeoutMs: 10_000, mayMint: () => true });
      } catch (error) {
        if (!(KrabkaError.is(error) && error.code === "BUSY")) throw error;
        await sleep(10);
      }
    }
  };

  /** Leaves a transaction with one record open; the next mint aborts it. */
  const abandon = async (member: string): Promise<void> => {
    const kafka = new kafkajs.Kafka({ brokers: cluster.bootstrap.split(","), logLevel: kafkajs.logLevel.NOTHING });
    const producer = kafka.producer({
      transactionalId: `stranger-${member}`,
      maxInFlightRequests: 1,
      idempotent: true,
    });
    await producer.connect();
    const transaction = await producer.transaction();
    const { key, value } = registration(member);
    const message = { key: Buffer.from(key ?? []), value: Buffer.from(value ?? []), partition: 0 };
    await transaction.send({ topic: TOPIC, messages: [message] });
    await transaction.abort();
    await producer.disconnect();
  };

  beforeAll(async () => {
    // A second of idleness closes a connection, so every pause of the tests also needs a new one.
    const settings = { "log.cleaner.backoff.ms": "100", "connections.max.idle.ms": "1500" };
    cluster = await startKafka({ settings });
    admin = new kafkajs.Kafka({ brokers: cluster.bootstrap.split(","), logLevel: kafkajs.logLevel.NOTHING }).admin();
    await admin.connect();
    const configEntries = Object.entries({
      "cleanup.policy": "compact",
      "segment.ms": "50",
      "min.cleanable.dirty.ratio": "0.001",
      "max.compaction.lag.ms": "50",
      "delete.retention.ms": "0",
      "message.timestamp.type": "LogAppendTime",
    }).map(([name, value]) => ({ name, value }));
    await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 1, replicationFactor: 1, configEntries }] });
  });

  afterEach(async () => {
    await Promise.all(transports.splice(0).map((opened) => opened.close()));
  });

  afterAll(async () => {
    await admin?.disconnect();
    await cluster?.close();
  });

  it("a cold reader sees what one saw that never left, whatever was committed, aborted, removed and cleaned (D3, D5)", async () => {
    const reader = transport();
    const witness = new Witness();
    const feed = reader.follow(ROLE, witness);
    const session = await mint();
    for (let round = 0; round < 40; round++) {
      const member = `m-${round % 5}`;
      await reader.appendUnfenced(HOME, [registration(member)]);
      if (round % 4 === 0) await abandon(`ghost-${round}`);
      if (round % 7 === 0) await reader.appendUnfenced(HOME, [removal(member)]);
      const write =
        round % 2 === 0
          ? session.append(HOME, [lease(session, round)])
          : session.commit([{ ...HOME, ...lease(session, round) }]);
      expect((await write).status).toBe("committed");
      await sleep(60);
    }
    await sleep(1000);
    await reader.appendUnfenced(HOME, [registration("last")]);
    await feed.sync();
    const cold = new Witness();
    await transport().follow(ROLE, cold).sync();
    expect(facts(cold.state)).toEqual(facts(witness.state));
    expect(cold.state.roster.some(({ member }) => member.startsWith("ghost"))).toBe(false);
    expect(witness.resets).toBe(0);
    // Else nothing was cleaned, and the comparison would prove nothing.
    expect(cold.received).toBeLessThan(witness.received);
  });

  it("a follower whose topic was made anew drops what it knew and reads the new one", async () => {
    const reader = transport();
    const witness = new Witness();
    const feed = reader.follow(ROLE, witness);
    await reader.appendUnfenced(HOME, [registration("before")]);
    await feed.sync();
    expect(witness.state.roster.length).toBeGreaterThan(0);
    await admin.deleteTopics({ topics: [TOPIC] });
    await sleep(300);
    await admin.createTopics({
      topics: [
        {
          topic: TOPIC,
          numPartitions: 1,
          replicationFactor: 1,
          configEntries: [{ name: "cleanup.policy", value: "compact" }],
        },
      ],
      waitForLeaders: true,
    });
    await reader.appendUnfenced(HOME, [registration("after")], { timeoutMs: 10_000 });
    await feed.sync({ timeoutMs: 10_000 });
    for (let look = 0; look < 100 && witness.resets === 0; look++) await sleep(50);
    await feed.sync({ timeoutMs: 10_000 });
    expect(witness.state.roster.map(({ member }) => member)).toEqual(["after"]);
    expect(witness.resets).toBeGreaterThan(0);
  });

  it("a session that was idle until the broker closed its connection writes at the first attempt (C3)", async () => {
    const session = await mint();
    expect((await session.append(HOME, [lease(session, 1)])).status).toBe("committed");
    await sleep(3500);
    expect((await session.append(HOME, [lease(session, 2)])).status).toBe("committed");
    expect((await session.commit([{ ...HOME, ...lease(session, 3) }])).status).toBe("committed");
    expect(session.mustRemint).toBe(false);
  });
});
