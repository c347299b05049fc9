import { setTimeout as sleep } from "node:timers/promises";
import { FenceGate, type FencingToken, KrabkaError, type Leadership } from "@krabka/client";
import { expect } from "vitest";
import { LIMIT, type Stage, until, untilEnded } from "./stage.js";
import { runsOr, type Trial } from "./trial.js";
import { CONCURRENT_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID, initProducerIdAnswer, isCommit } from "./wire-answers.js";

const pairOf = ({ producerId, epoch }: FencingToken) => ({ producerId, epoch });

/** Who leads, under which token, and who is shut out. */
export const termTrials: readonly Trial[] = [
  {
    // Brokers of 4.x run with transaction.version=2, where a client of the new protocol gets a new epoch at each commit.
    title:
      "A1: the token stays the same over renewals, writes and an abort, and agrees with the log and the coordinator",
    run: async (stage) => {
      const [role, topic, gate] = [stage.role(), await stage.topic(), FenceGate.inMemory()];
      const former = await stage.member("former", { leaseMs: 10_000 });
      const member = await stage.member("member", { leaseMs: 10_000 });
      const first = await former.client.acquire(role, former.id, LIMIT);
      const old = first.token;
      await gate.admit(old);
      await first.resign();
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const { token } = leadership;
      const agree = async () => {
        expect(leadership.token.equals(token)).toBe(true);
        expect(await stage.pairOf(role)).toEqual(pairOf(token));
        expect((await stage.leaseTokenOf(role))?.equals(token)).toBe(true);
        await gate.admit(leadership.token);
      };
      await agree();
      for (let renewal = 0; renewal < 5; renewal++) {
        await leadership.renew();
        await agree();
      }
      for (let write = 0; write < 20; write++) {
        await leadership.write({ topic, value: `${write}` });
        await agree();
      }
      const abort = member.proxy.inject({
        apiKey: END_TXN,
        when: (request) => !isCommit(request),
        action: { delayAnswerMs: 0 },
      });
      await expect(leadership.write({ topic, value: "x".repeat(5_000_000) })).rejects.toMatchObject({
        code: expect.stringMatching(/^(NOT_COMMITTED|INVALID_ARGUMENT)$/),
      });
      expect(abort.hits).toBe(1);
      await agree();
      await leadership.write({ topic, value: "20" });
      await agree();
      const found = await stage.found(topic);
      expect(found.map(({ value }) => value)).toEqual(Array.from({ length: 21 }, (_, index) => `${index}`));
      expect(new Set(found.map((record) => record.token))).toEqual(new Set([String(token)]));
      await expect(gate.admit(old)).rejects.toMatchObject({ code: "FENCED" });
    },
  },
  {
    title:
      "A6: a leader whose role was forgotten is deposed at its next write, and mints only after reading the role again",
    cluster: {
      settings: {
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
      },
    },
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 60_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const { token } = leadership;
      await leadership.write({ topic, value: "a" });
      member.suspend();
      const rival = await stage.strangerSession(role);
      const record = { topic, key: null, value: Buffer.from("b"), headers: [] };
      expect((await rival.commit([record], LIMIT)).status).toBe("committed");
      await until("both ids to expire", async () => (await stage.pairOf(role)) === undefined);
      const minted = member.proxy.requests(INIT_PRODUCER_ID);
      member.resume();
      expect(leadership.isLeader).toBe(true);
      await expect(leadership.write({ topic, value: "zombie" })).rejects.toMatchObject({ code: "FENCED" });
      expect(leadership.isLeader).toBe(false);
      expect(await stage.pairOf(role)).toBeUndefined();
      expect(member.proxy.requests(INIT_PRODUCER_ID)).toBe(minted);
      const again = await member.client.acquire(role, member.id, LIMIT);
      expect(again.token.compareTo(token)).toBe(1);
      await again.write({ topic, value: "again" });
      expect(await stage.values(topic)).toEqual(["a", "b", "again"]);
    },
  },
  {
    // The proposal's 40 s pause is the transaction's timeout (10 s for a lease of 3 s) and what the broker needs to see it.
    title: "A9: a sole leader that the broker timed out is told so, blames nobody and leads again under a later token",
    cluster: { settings: { "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200" } },
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const sole = await stage.process("sole", [role], { leaseMs: 3_000 });
      const { token } = await sole.next("leads");
      const held = sole.proxy.inject({ apiKey: END_TXN, action: { hold: true } });
      sole.write(role, topic, "late");
      await held.hit;
      sole.stop();
      await untilEnded(stage, role);
      sole.continue();
      held.release();
      const wokeAtMs = performance.now();
      expect((await sole.next("wrote")).result).not.toBe("written");
      const { message } = await sole.next("lost");
      expect(message).not.toMatch(/rival|another|later token/i);
      const again = await sole.next("leads");
      expect(performance.now() - wokeAtMs).toBeLessThan(5_000);
      expect(BigInt(again.token.split(":")[0] ?? 0)).toBeGreaterThan(BigInt(token.split(":")[0] ?? 0));
      sole.write(role, topic, "after");
      expect((await sole.next("wrote")).result).toBe("written");
      expect(await stage.values(topic)).toEqual(["after"]);
    },
  },
  {
    title: "A11: a leader that wakes up from a stop never mints before it is entitled, and its successor loses nothing",
    run: async (stage) => {
      await Promise.all(Array.from({ length: runsOr(5) }, (_, run) => wakeUpBehindSuccessor(stage, run)));
    },
  },
  {
    title: "A12: each earlier leader is refused whatever its client id, and may stand for the role again",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const reigns: {
        readonly name: string;
        readonly member: Awaited<ReturnType<Stage["member"]>>;
        readonly leadership: Leadership;
      }[] = [];
      for (const name of ["a", "b", "a-restarted", "b-renamed"]) {
        reigns.at(-1)?.member.suspend();
        const member = await stage.member(name, { leaseMs: 1_000, clientId: `client-of-${name}` });
        const leadership = await member.client.acquire(role, member.id, LIMIT);
        await leadership.write({ topic, value: name });
        reigns.push({ name, member, leadership });
      }
      const current = reigns.at(-1)?.leadership as Leadership;
      const tokens = reigns.map(({ leadership }) => leadership.loss?.error.token ?? leadership.token);
      expect(tokens.map((token, index) => index === 0 || token.compareTo(tokens[index - 1] as FencingToken))).toEqual([
        true,
        1,
        1,
        1,
      ]);
      const deposed = reigns.slice(0, -1);
      for (const { member, leadership } of deposed) {
        member.resume();
        // Its own clock stood still, so this is the broker's word or the log's.
        await expect(leadership.write({ topic, value: "zombie" })).rejects.toMatchObject({ code: "FENCED" });
      }
      const standbys = deposed.map(({ member }) => member.client.acquire(role, member.id, LIMIT));
      for (const { name } of deposed) await stage.registered(role, name);
      await current.resign();
      const next = await Promise.race(standbys);
      await next.write({ topic, value: `${next.member} again` });
      const expected = [...reigns.map(({ name }) => name), `${next.member} again`];
      expect(await stage.values(topic)).toEqual(expected);
      for (const standby of standbys) standby.catch(() => undefined);
    },
  },
  {
    title: "A14a: a leader that a stranger's mint fenced is told once, and leads again under a later token",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 3_000 });
      const leaderships: Leadership[] = [];
      let losses = 0;
      const stop = new AbortController();
      const campaign = member.client.campaign(
        role,
        member.id,
        async (leadership, signal) => {
          leaderships.push(leadership);
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          if (!stop.signal.aborted) losses += 1;
        },
        { signal: stop.signal },
      );
      await until("the first term", () => leaderships.length === 1);
      await stage.strangerSession(role);
      await until("the second term", () => leaderships.length === 2);
      const [first, second] = leaderships as [Leadership, Leadership];
      expect(losses).toBe(1);
      expect(first.loss?.reason).toBe("fenced");
      expect(second.token.compareTo(first.loss?.error.token as FencingToken)).toBe(1);
      await second.write({ topic, value: "second" });
      await sleep(1_500);
      expect(leaderships.length).toBe(2);
      stop.abort();
      await campaign;
    },
  },
  {
    title: "A14b: a candidate whose mint is answered CONCURRENT_TRANSACTIONS three times goes on, and leads",
    run: async (stage) => {
      const role = stage.role();
      const member = await stage.member("a", { leaseMs: 3_000 });
      const busy = member.proxy.inject({
        apiKey: INIT_PRODUCER_ID,
        times: 3,
        action: { answer: initProducerIdAnswer(CONCURRENT_TRANSACTIONS) },
      });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      expect(busy.hits).toBe(3);
      expect(await stage.pairOf(role)).toEqual(pairOf(leadership.token));
    },
  },
];

/** One run of A11: the leader stops at a random instant of its renewals and wakes up two leases later. */
const wakeUpBehindSuccessor = async (stage: Stage, run: number): Promise<void> => {
  const leaseMs = 1_000;
  const [role, topic] = [stage.role(), await stage.topic()];
  const zombie = await stage.process(`zombie-${run}`, [role], { leaseMs });
  await zombie.next("leads");
  const successor = await stage.member(`successor-${run}`, { leaseMs });
  const won = successor.client.acquire(role, successor.id, LIMIT);
  await stage.registered(role, successor.id);
  await sleep(Math.random() * leaseMs);
  zombie.stop();
  const stoppedAtMs = performance.now();
  const leadership = await won;
  const { token } = leadership;
  const minted = zombie.proxy.requests(INIT_PRODUCER_ID);
  let written = 0;
  let failure: unknown;
  const writing = new AbortController();
  const writer = (async () => {
    for (; !writing.signal.aborted && failure === undefined; await sleep(100)) {
      await leadership.write({ topic, value: `${written}` }).then(
        () => {
          written += 1;
        },
        (error: unknown) => {
          failure = error;
        },
      );
    }
  })();
  await sleep(Math.max(0, 2 * leaseMs - (performance.now() - stoppedAtMs)));
  zombie.continue();
  await sleep(1_500);
  writing.abort();
  await writer;
  expect(failure, KrabkaError.is(failure) ? failure.message : undefined).toBeUndefined();
  expect(zombie.proxy.requests(INIT_PRODUCER_ID)).toBe(minted);
  expect(leadership.isLeader && leadership.token.equals(token)).toBe(true);
  expect((await stage.values(topic)).length).toBe(written);
  await leadership.resign();
  expect((await zombie.next("leads")).role).toBe(role);
};
