import { setTimeout as sleep } from "node:timers/promises";
import type { MemberId } from "@krabka/client";
import { expect } from "vitest";
import { Crew } from "./crew.js";
import type { MemberProcess } from "./member-process.js";
import { until } from "./stage.js";
import { runsOr, type Trial } from "./trial.js";

/** Outages that heal: a coordinator that stands still, a network that swallows everything, too few replicas. */
export const outageTrials: readonly Trial[] = [
  {
    // 20 s at a lease of 30 s and a broker session of 9 s become 2 s at a lease of 3 s and a session of 1 s: the brokers
    // give the role to another coordinator meanwhile, and the old one wakes up behind it.
    title: "B6: whenever its coordinator stands still, a write is answered within the lease, and the role is led again",
    cluster: {
      brokers: 3,
      settings: { "broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200" },
    },
    run: async (stage) => {
      const [leaseMs, staggerMs, stopMs, pollMs] = [3_000, 500, 2_000, 1_000];
      const [role, topic, runs] = [stage.role(), await stage.topic(), runsOr(2)];
      const members = [await stage.process("a", [role], { leaseMs }), await stage.process("b", [role], { leaseMs })];
      const written: string[] = [];
      const notWritten: string[] = [];
      const write = async (member: MemberProcess, value: string): Promise<string> => {
        member.write(role, topic, value);
        // Answers to writes that overlap come in any order.
        const answer = () => member.all("wrote").find((told) => told.value === value);
        await until(`an answer about ${value}`, () => answer() !== undefined);
        const result = answer()?.result ?? "";
        if (result === "written") written.push(value);
        else if (result !== "UNKNOWN_OUTCOME") notWritten.push(value);
        return result;
      };
      /** Whoever has led goes on trying until one write is committed. */
      const leader = async (name: string): Promise<MemberProcess> => {
        let found: MemberProcess | undefined;
        const attempt = async (member: MemberProcess): Promise<void> => {
          for (let n = 0; found === undefined; n++, await sleep(20)) {
            if (member.all("leads").length === 0) continue;
            if ((await write(member, `${name} ${members.indexOf(member)}.${n}`)) === "written") found ??= member;
          }
        };
        await Promise.all(members.map(attempt));
        return found as unknown as MemberProcess;
      };
      await stage.inSync(topic);
      const [answeredMs, ledMs, results]: [number[], number[], string[]] = [[], [], []];
      for (let run = 0; run < runs; run++) {
        const incumbent = await leader(`before ${run}`);
        const coordinatorId = await stage.coordinatorOf(role);
        const coordinator = stage.cluster.brokers.find(({ id }) => id === coordinatorId);
        const startedAtMs = performance.now();
        const answer = write(incumbent, `during ${run}`).then((result) => {
          answeredMs.push(performance.now() - startedAtMs);
          results.push(result);
        });
        // A transaction takes about as long.
        await sleep(Math.random() * 12);
        coordinator?.pause();
        await sleep(stopMs);
        coordinator?.resume();
        const healedAtMs = performance.now();
        await leader(`after ${run}`);
        ledMs.push(performance.now() - healedAtMs);
        await answer;
        await stage.inSync(topic);
      }
      console.log(
        `B6: ${results.join(", ")}; answered after at most ${Math.max(...answeredMs).toFixed(0)} ms, led again after at most ${Math.max(...ledMs).toFixed(0)} ms`,
      );
      expect(Math.max(...answeredMs)).toBeLessThan(leaseMs);
      expect(Math.max(...ledMs)).toBeLessThan(leaseMs + staggerMs + pollMs);
      for (const member of members) {
        expect(member.all("unhandled")).toEqual([]);
        expect(member.isAlive).toBe(true);
      }
      const values = await stage.values(topic);
      expect(values.filter((value) => written.includes(value)).sort()).toEqual(written.sort());
      expect(values.filter((value) => notWritten.includes(value))).toEqual([]);
    },
  },
  {
    // 20 members and 45 s at a lease of 30 s become 6 members and 3 s at a lease of 2 s; 60 s become two leases.
    title:
      "C2: after a silent cut every member leads or stands by again, and the old leader claimed no longer than its lease",
    run: async (stage) => {
      const [leaseMs, cutMs] = [2_000, 3_000];
      const [role, topic] = [stage.role(), await stage.topic()];
      const crew = await Crew.gather(stage, role, runsOr(6), leaseMs);
      const former = await crew.leader();
      await crew.untilWritten(topic);
      for (const { proxy } of crew.members) proxy.blackhole(true);
      const cutAtMs = performance.now();
      let claimedMs = 0;
      while (performance.now() - cutAtMs < cutMs) {
        const atMs = performance.now() - cutAtMs;
        if (crew.terms.some(({ isLeader }) => isLeader)) claimedMs = atMs;
        await sleep(5);
      }
      for (const { proxy } of crew.members) proxy.blackhole(false);
      const healedAtMs = performance.now();
      expect(claimedMs).toBeLessThan(leaseMs);
      expect(former.loss).toBeDefined();
      const leaderAfterMs = await crew.untilWritten(topic);
      for (const { id } of crew.members) await crew.present(id);
      const allAfterMs = performance.now() - healedAtMs;
      // A registration may be left from before. Who stands by takes over in a moment when the role is handed to it.
      const led = new Set<MemberId>();
      const startedAtMs = performance.now();
      for (const { id } of crew.members) {
        const leadership = await crew.leader();
        if (leadership.member !== id) {
          await stage.registered(role, id);
          await leadership.transferTo(id);
        }
        await until(`${id} to lead`, async () => (await crew.leader()).member === id);
        await crew.untilWritten(topic);
        led.add(id);
      }
      const handedMs = (performance.now() - startedAtMs) / led.size;
      console.log(
        `C2: ${led.size} members; claimed for ${claimedMs.toFixed(0)} ms; led after ${leaderAfterMs.toFixed(0)} ms, complete after ${allAfterMs.toFixed(0)} ms; handed over in ${handedMs.toFixed(0)} ms`,
      );
      expect(allAfterMs).toBeLessThan(2 * leaseMs);
      expect(crew.deserters).toEqual([]);
      await crew.dismiss();
    },
  },
  {
    // 3 minutes at a lease of 30 s become 4 s at a lease of 1 s. That the transaction log wants all three replicas makes one
    // broker enough, so that the controllers keep their quorum; with KRABKA_TRIAL_RUNS=2 both others stop.
    title:
      "C5: while the transaction log has too few replicas nobody gives up or burns epochs, and one leads soon after",
    // A coordinator that could not note the end of a transaction tries again after the brokers' request timeout, unless
    // another role's transaction wakes it (Kafka 4.1): these 30 s become 1 s too.
    cluster: { brokers: 3, settings: { "transaction.state.log.min.isr": "3", "request.timeout.ms": "1000" } },
    run: async (stage) => {
      const [leaseMs, downMs] = [1_000, 4_000];
      const [role, topic] = [stage.role(), await stage.topic()];
      const crew = await Crew.gather(stage, role, 5, leaseMs);
      await stage.inSync(topic);
      await crew.untilWritten(topic);
      const before = await stage.pairOf(role);
      const coordinatorId = await stage.coordinatorOf(role);
      const others = stage.cluster.brokers.filter(({ id }) => id !== coordinatorId).slice(0, runsOr(1));
      for (const broker of others) await broker.stop();
      await sleep(downMs);
      const ledBefore = crew.terms.some(({ isLeader }) => isLeader);
      await Promise.all(others.map((broker) => broker.start()));
      await stage.inSync(topic);
      const ledAfterMs = await crew.untilWritten(topic);
      const after = await stage.pairOf(role);
      const epochs = (after?.epoch ?? Number.NaN) - (before?.epoch ?? Number.NaN);
      console.log(
        `C5: ${ledBefore ? "a leader" : "nobody"} claimed to lead during the outage; written ${ledAfterMs.toFixed(0)} ms after it, ${epochs} epochs later`,
      );
      expect(after?.producerId).toBe(before?.producerId);
      expect(epochs).toBeLessThan(20);
      expect(ledAfterMs).toBeLessThan(leaseMs + 5_000);
      expect(crew.terms.filter(({ isLeader }) => isLeader).length).toBe(1);
      expect(crew.deserters).toEqual([]);
      await crew.dismiss();
    },
  },
];
