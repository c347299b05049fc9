import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { KrabkaError } from "@krabka/client";
import { expect } from "vitest";
import { LIMIT, until, untilEnded } from "./stage.js";
import { runsOr, type Trial } from "./trial.js";
import {
  ADD_PARTITIONS_TO_TXN,
  addPartitionsAnswer,
  COORDINATOR_NOT_AVAILABLE,
  END_TXN,
  endTxnAnswer,
  INIT_PRODUCER_ID,
  isCommit,
} from "./wire-answers.js";

/** What a caller is told of a write, and how soon the next one works. */
export const outcomeTrials: readonly Trial[] = [
  {
    // The proposal's 15 s pause is the transaction's timeout (10 s) and what the broker needs to see it.
    title: "B1: a write whose transaction the broker timed out is not called committed, and nobody claims to lead",
    cluster: { settings: { "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200" } },
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 6_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const held = member.proxy.inject({ apiKey: END_TXN, action: { hold: true } });
      const write = leadership.write({ topic, value: "late" }).then(
        () => "written",
        (error: unknown) => (KrabkaError.is(error) ? error.code : error),
      );
      await held.hit;
      member.suspend();
      await untilEnded(stage, role);
      member.resume();
      held.release();
      expect(await write).toMatch(/^(FENCED|UNKNOWN_OUTCOME|NOT_LEADER)$/);
      await until("the loss", () => leadership.loss !== undefined);
      expect(leadership.isLeader).toBe(false);
      expect(await stage.values(topic)).toEqual([]);
    },
  },
  {
    title:
      "B2: a caller that reads again after UNKNOWN_OUTCOME has each write exactly once, though every commit's answer is lost",
    run: async (stage) => {
      const [role, topic, runs] = [stage.role(), await stage.topic(), runsOr(100)];
      const member = await stage.member("a", { leaseMs: 8_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      let unknown = 0;
      for (let run = 0; run < runs; run++) {
        // The first commit's repetitions lose their answers too, so that the call can't settle it. Silent losses take a
        // second to be noticed, so most answers are cut off instead.
        const rule = { apiKey: END_TXN, when: isCommit, times: run === 0 ? 1_000 : 1 };
        const lost = member.proxy.inject({ ...rule, action: run < 3 ? "drop-answer" : "cut-after" });
        try {
          await leadership.write({ topic, value: `${run}` }, { timeoutMs: 2_000 });
        } catch (error) {
          if (!KrabkaError.is(error)) throw error;
          const isThere = (await stage.values(topic)).includes(`${run}`);
          if (error.code === "UNKNOWN_OUTCOME") unknown += 1;
          // It waited all the time for the epoch that the one before it was settled with.
          else expect([error.code, isThere]).toEqual(["TIMEOUT", false]);
          if (!isThere) await leadership.write({ topic, value: `${run}` });
        }
        lost.cancel();
        expect(lost.hits).toBeGreaterThan(0);
      }
      console.log(`B2: ${runs} lost answers, of which ${unknown} were not settled within the call`);
      expect(unknown).toBeGreaterThan(0);
      expect(await stage.values(topic)).toEqual(Array.from({ length: runs }, (_, run) => `${run}`));
      expect(leadership.isLeader).toBe(true);
    },
  },
  {
    title: "B4: one failed EndTxn(commit), EndTxn(abort) or AddPartitionsToTxn does not keep the next write for 5 s",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 10_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const failing = endTxnAnswer(COORDINATOR_NOT_AVAILABLE);
      const faults = [
        { apiKey: END_TXN, when: isCommit, action: { answer: () => failing }, value: "commit" },
        { apiKey: END_TXN, action: { answer: () => failing }, value: "x".repeat(5_000_000) },
        {
          apiKey: ADD_PARTITIONS_TO_TXN,
          action: { answer: addPartitionsAnswer(COORDINATOR_NOT_AVAILABLE) },
          value: "add",
        },
      ];
      const expected: string[] = [];
      for (const { value, ...rule } of faults) {
        const fault = member.proxy.inject(rule);
        const result = await leadership.write({ topic, value }).then(
          () => "written",
          (error: KrabkaError) => error.code,
        );
        expect(fault.hits).toBe(1);
        if (result === "written") expected.push(value);
        expect(result).not.toBe("UNKNOWN_OUTCOME");
        const healedAtMs = performance.now();
        await leadership.write({ topic, value: "next" });
        expected.push("next");
        expect(performance.now() - healedAtMs).toBeLessThan(5_000);
      }
      expect(await stage.values(topic)).toEqual(expected);
      expect(leadership.isLeader).toBe(true);
    },
  },
  {
    title:
      "B5: 500 writes without a pause over three partitions are committed in order, fast, and renewals stay on time",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic(3)];
      const leaseMs = 3_000;
      const member = await stage.member("a", { leaseMs });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const renewedAtMs = [performance.now()];
      const onRenewed = (message: unknown): void => {
        if ((message as { role: string }).role === role) renewedAtMs.push(performance.now());
      };
      subscribe("krabka.renewed", onRenewed);
      const tookMs: number[] = [];
      try {
        for (let write = 0; write < 500; write++) {
          const startedAtMs = performance.now();
          await leadership.write([0, 1, 2].map((partition) => ({ topic, partition, value: `${write}` })));
          tookMs.push(performance.now() - startedAtMs);
        }
      } finally {
        unsubscribe("krabka.renewed", onRenewed);
      }
      renewedAtMs.push(performance.now());
      const gapsMs = renewedAtMs.slice(1).map((atMs, index) => atMs - (renewedAtMs[index] as number));
      tookMs.sort((a, b) => a - b);
      const [p50, p99] = [tookMs[250] as number, tookMs[495] as number];
      console.log(
        `B5: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms; longest time without a renewal ${Math.max(...gapsMs).toFixed(0)} ms`,
      );
      expect(p50).toBeLessThan(100);
      // Due after a third of the lease.
      expect(Math.max(...gapsMs)).toBeLessThan(leaseMs / 2);
      expect(leadership.isLeader).toBe(true);
      const inOrder = Array.from({ length: 500 }, (_, write) => `${write}`);
      expect(await stage.values(topic)).toEqual([...inOrder, ...inOrder, ...inOrder]);
    },
  },
  {
    title:
      "B8: a sole candidate whose mint is answered too late leads all the same, under the pair that the broker holds",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 6_000 });
      const late = member.proxy.inject({ apiKey: INIT_PRODUCER_ID, action: { delayAnswerMs: 4_000 } });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      expect(late.hits).toBe(1);
      const { producerId, epoch } = leadership.token;
      expect(await stage.pairOf(role)).toEqual({ producerId, epoch });
      expect((await stage.leaseTokenOf(role))?.equals(leadership.token)).toBe(true);
      expect(member.proxy.requests(INIT_PRODUCER_ID)).toBeLessThan(4);
      await leadership.write({ topic, value: "led" });
      expect(await stage.values(topic)).toEqual(["led"]);
    },
  },
  {
    // 60 s of outage at a lease of 30 s become 5 s at a lease of 2 s.
    title: "B10: all brokers gone and back again while three roles are led: nothing goes unhandled, and all lead again",
    cluster: {},
    run: async (stage) => {
      const roles = [stage.role(), stage.role(), stage.role()];
      const topic = await stage.topic();
      const member = await stage.process("a", roles, { leaseMs: 2_000 });
      for (const _ of roles) await member.next("leads");
      const [broker] = stage.cluster.brokers;
      for (const role of roles) member.write(role, topic, "in the middle");
      await broker?.kill();
      await sleep(5_000);
      await broker?.start();
      for (const _ of roles) await member.next("lost");
      const again = await Promise.all(roles.map(() => member.next("leads")));
      expect(new Set(again.map(({ role }) => role))).toEqual(new Set(roles));
      for (const _ of roles) await member.next("wrote");
      for (const role of roles) {
        member.write(role, topic, "after");
        expect((await member.next("wrote")).result).toBe("written");
      }
      expect(member.all("unhandled")).toEqual([]);
      expect(member.isAlive).toBe(true);
    },
  },
];
