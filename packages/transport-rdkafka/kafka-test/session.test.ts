import { setTimeout as sleep } from "node:timers/promises";
import {
  type CoordinationRecord,
  encodeEntry,
  encodeUtf8,
  type FeedListener,
  KrabkaError,
  MemberId,
  NO_ATTRIBUTES,
  type OutgoingRecord,
  partitionForRole,
  Role,
  type WriterSession,
} from "@krabka/core";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { RdKafkaTransport } from "../src/index.js";
import { ProducerInstance } from "../src/producer-instance.js";
import { type RdKafkaHarness, startHarness } from "./rdkafka-harness.js";

const SESSION = { transactionTimeoutMs: 10_000, mayMint: () => true };
const INIT_PRODUCER_ID = 22;
const END_TXN = 26;

let harness: RdKafkaHarness;
let names = 0;
const transports: RdKafkaTransport[] = [];

beforeAll(async () => {
  harness = await startHarness();
  await harness.createTopic("commands", 3);
  // The coordinator loads its log at the first mint.
  await (await mint(await transport(), Role.of("warm"))).close();
});
afterEach(async () => {
  harness.cluster.faults?.reset();
  await Promise.all(transports.splice(0).map((one) => one.close()));
});
afterAll(async () => {
  await harness.close();
});

const transport = async (faulty = false): Promise<RdKafkaTransport> => {
  const made = harness.transport({ topic: { name: "coordination", partitions: 1 }, faulty });
  transports.push(made);
  await made.prepare();
  return made;
};

const role = (): Role => {
  names += 1;
  return Role.of(`role-${names}`);
};

const mint = async (on: RdKafkaTransport, aRole: Role): Promise<WriterSession> => {
  for (;;) {
    try {
      return await on.openSession(aRole, SESSION);
    } catch (error) {
      if (!KrabkaError.is(error) || error.code !== "BUSY") throw error;
      await sleep(10);
    }
  }
};

const command = (value: string, partition = 0): OutgoingRecord => ({
  topic: "commands",
  partition,
  key: encodeUtf8("device"),
  value: encodeUtf8(value),
  headers: [],
});

const codeOf = async (call: Promise<unknown>): Promise<string> => {
  try {
    await call;
  } catch (error) {
    return codeIn(error);
  }
  return "resolved";
};

const codeIn = (error: unknown): string => (KrabkaError.is(error) ? error.code : String(error));

const requests = (apiKey: number): number => harness.cluster.faults?.requests(apiKey) ?? 0;

describe("a session", () => {
  it("J4: has the pair that the coordinator holds for it, over takeovers in quick succession", async () => {
    const [one, other] = [await transport(), await transport()];
    const contested = role();
    for (let takeover = 0; takeover < 10; takeover++) {
      const session = await mint(takeover % 2 === 0 ? one : other, contested);
      expect(await harness.describeRole(contested)).toEqual(session.pair);
    }
  });

  it("A1: keeps its pair over commits and over an abort", async () => {
    const session = await mint(await transport(), role());
    const { pair } = session;
    for (let write = 0; write < 20; write++) expect((await session.commit([command("x")])).status).toBe("committed");
    const refused = await session.commit([command("beside it"), command("x".repeat(3_000_000))]);
    expect(refused.status).toBe("aborted");
    expect((await session.commit([command("y")])).status).toBe("committed");
    expect(session.mustRemint).toBe(false);
    expect(await harness.describeRole(session.role)).toEqual(pair);
  });

  it("goes on after the broker refused a record, and nothing of that write is visible", async () => {
    await harness.createTopic("narrow", 1, { "max.message.bytes": "1000" });
    const session = await mint(await transport(), role());
    const { pair } = session;
    const records = [command("beside it", 2), { ...command("x".repeat(5_000)), topic: "narrow" }];
    const outcome = await session.commit(records);
    expect(outcome.status).toBe("aborted");
    expect(outcome.status === "aborted" && codeIn(outcome.cause)).toBe("INVALID_ARGUMENT");
    expect((await session.commit([command("after it", 2)])).status).toBe("committed");
    expect(await harness.describeRole(session.role)).toEqual(pair);
    const seen = await harness.readCommitted({ topic: "commands", partition: 2 });
    expect(seen.map(({ value }) => String(value))).toEqual(["after it"]);
  });

  it("is at its end after a lost answer, though the write was settled as committed", async () => {
    const session = await mint(await transport(true), role());
    expect((await session.commit([command("warm")])).status).toBe("committed");
    expect(session.mustRemint).toBe(false);
    await harness.injectFault({ api: "EndTxn", effect: "lose-answer" });
    expect((await session.commit([command("once")])).status).toBe("committed");
    expect(session.mustRemint).toBe(true);
    expect(await codeOf(session.commit([command("next")]))).toBe("UNKNOWN_OUTCOME");
    expect(await codeOf(session.remint())).toBe("UNSUPPORTED");
  });

  it("B6: asks librdkafka once for a commit whose answer takes long, since more could end the process", async () => {
    const session = await mint(await transport(true), role());
    const held = harness.cluster.faults?.inject({ apiKey: END_TXN, action: { hold: true } });
    const asked = vi.spyOn(ProducerInstance.prototype, "commitTransaction");
    const outcome = session.commit([command("late")], { timeoutMs: 20_000 });
    await held?.hit;
    await sleep(1_500);
    expect(asked).toHaveBeenCalledTimes(1);
    held?.release();
    expect((await outcome).status).toBe("committed");
    asked.mockRestore();
  });

  it("B6: is answered at once when it is closed while a commit's answer takes long", async () => {
    const session = await mint(await transport(true), role());
    const held = harness.cluster.faults?.inject({ apiKey: END_TXN, action: { hold: true } });
    const outcome = session.commit([command("late")], { timeoutMs: 20_000 });
    await held?.hit;
    await sleep(600);
    const closedAtMs = performance.now();
    const closed = session.close();
    expect((await outcome).status).toBe("unknown");
    await closed;
    expect(performance.now() - closedAtMs).toBeLessThan(2_000);
    held?.release();
  });

  it("B7: settles every call within its limit after a fence, and the event loop goes on", async () => {
    const [one, other] = [await transport(), await transport()];
    const contested = role();
    const deposed = await mint(one, contested);
    await mint(other, contested);
    let latest = performance.now();
    let drift = 0;
    const timer = setInterval(() => {
      drift = Math.max(drift, performance.now() - latest - 10);
      latest = performance.now();
    }, 10);
    const startedAtMs = performance.now();
    const outcomes = await Promise.all([1, 2, 3].map(() => deposed.commit([command("zombie")], { timeoutMs: 2_000 })));
    await deposed.close();
    clearInterval(timer);
    expect(outcomes.map(({ status }) => status)).toEqual(["fenced", "fenced", "fenced"]);
    expect(performance.now() - startedAtMs).toBeLessThan(2_500);
    expect(drift).toBeLessThan(100);
  });

  it("J3: commits 50,000 records at once without holding up timers for a second", { timeout: 60_000 }, async () => {
    const session = await mint(await transport(), role());
    let latest = performance.now();
    let late = 0;
    const timer = setInterval(() => {
      late = Math.max(late, performance.now() - latest - 100);
      latest = performance.now();
    }, 100);
    const records = Array.from({ length: 50_000 }, (_, index) => command(`${index}`, 1));
    const outcome = await session.commit(records, { timeoutMs: 30_000 });
    clearInterval(timer);
    expect(outcome.status).toBe("committed");
    expect(late).toBeLessThan(1_000);
  });

  it("does not write a header that would arrive changed", async () => {
    const session = await mint(await transport(), role());
    const header = { key: "h", value: Uint8Array.of(0xff) };
    expect(await codeOf(session.commit([{ ...command("x"), headers: [header] }]))).toBe("INVALID_ARGUMENT");
    expect((await session.commit([command("y")])).status).toBe("committed");
  });
});

describe("a mint", () => {
  it("is not used when its answer is lost, and nothing goes out after the call", async () => {
    const faulty = await transport(true);
    const lost = role();
    const before = requests(INIT_PRODUCER_ID);
    await harness.injectFault({ api: "InitProducerId", effect: "lose-answer" });
    expect(await codeOf(faulty.openSession(lost, SESSION))).toBe("UNREACHABLE");
    const sent = requests(INIT_PRODUCER_ID) - before;
    // librdkafka is on a new connection after 10 ms, and may be faster than what stops it.
    expect(sent).toBeLessThanOrEqual(2);
    await sleep(1_000);
    expect(requests(INIT_PRODUCER_ID) - before).toBe(sent);
  });

  it("says BUSY at once while an earlier transaction ends, and is not repeated by itself", async () => {
    const contested = role();
    const open = await harness.startTransaction(contested, [command("open")]);
    const faulty = await transport(true);
    const before = requests(INIT_PRODUCER_ID);
    const startedAtMs = performance.now();
    expect(await codeOf(faulty.openSession(contested, SESSION))).toBe("BUSY");
    expect(performance.now() - startedAtMs).toBeLessThan(1_000);
    expect(requests(INIT_PRODUCER_ID) - before).toBe(1);
    await expect(open.end("commit")).rejects.toThrow();
  });

  it("goes on with the connection of one that was refused", async () => {
    const one = await transport();
    const refused = role();
    expect(await codeOf(one.openSession(refused, { ...SESSION, mayMint: () => false }))).toBe("BUSY");
    expect(await harness.describeRole(refused)).toBeUndefined();
    const session = await one.openSession(refused, SESSION);
    expect(await harness.describeRole(refused)).toEqual(session.pair);
  });

  it("does not go out once the state that it rests on is old", async () => {
    const faulty = await transport(true);
    harness.cluster.faults?.blackhole(true);
    const late = role();
    let asked = 0;
    const mayMint = () => {
      asked += 1;
      return false;
    };
    expect(await codeOf(faulty.openSession(late, { ...SESSION, mayMint, timeoutMs: 500 }))).toBe("TIMEOUT");
    expect(asked).toBe(0);
    harness.cluster.faults?.reset();
    await sleep(500);
    expect(await harness.describeRole(late)).toBeUndefined();
  });

  it.each([500, 2 ** 31 - 1])("refuses a transaction timeout of %i ms (B14)", async (transactionTimeoutMs) => {
    const one = await transport();
    expect(await codeOf(one.openSession(role(), { ...SESSION, transactionTimeoutMs }))).toBe("INVALID_ARGUMENT");
  });
});

describe("a feed", () => {
  const registration = (aRole: Role, member: string) => ({
    topic: "coordination",
    partition: partitionForRole(aRole, 1),
    ...encodeEntry({
      kind: "registration",
      role: aRole,
      member: MemberId.of(member),
      registeredAtMs: 1n,
      attributes: NO_ATTRIBUTES,
    }),
  });

  it("is not held up by an open transaction of another role, and says what it could not show (C6)", async () => {
    const one = await transport();
    const [own, other] = [role(), role()];
    const committed: CoordinationRecord[] = [];
    const uncommitted: CoordinationRecord[] = [];
    const listener: FeedListener = {
      onRecords: (records) => committed.push(...records),
      onUncommitted: (records) => uncommitted.push(...records),
      onReset: () => {},
      onMalformed: () => {},
      onError: () => {},
    };
    const feed = one.follow(own, listener);
    await feed.sync();
    const open = await harness.startTransaction("other", [registration(other, "undecided")]);
    const target = { topic: "coordination", partition: 0 };
    const startedAtMs = performance.now();
    expect(await feed.sync()).toBeGreaterThan(0n);
    expect(performance.now() - startedAtMs).toBeLessThan(1_000);
    const [position] = await one.appendUnfenced(target, [registration(own, "behind it")]);
    const end = await feed.sync();
    expect(performance.now() - startedAtMs).toBeLessThan(2_000);
    expect(end).toBeLessThanOrEqual(position?.offset ?? -1n);
    expect(committed).toEqual([]);
    expect(uncommitted.map(({ offset }) => offset)).toEqual([position?.offset]);
    await open.end("abort");
    expect(await feed.sync()).toBeGreaterThan(position?.offset ?? -1n);
    expect(committed.map(({ offset }) => offset)).toEqual([position?.offset]);
  });
});
