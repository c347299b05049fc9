import { setTimeout as sleep } from "node:timers/promises";
import type { LeaderHandler } from "@krabka/client";
import { expect } from "vitest";
import { LIMIT, type Stage, until } from "./stage.js";
import type { Trial } from "./trial.js";
import { INIT_PRODUCER_ID } from "./wire-answers.js";

/** Brokers that stop and connections that end. */
export const brokerTrials: readonly Trial[] = [
  {
    // The coordinator's 5 minutes become 5 s at a lease of 2 s.
    title:
      "C1: a role is without a working leader only briefly while its coordinator stops and all brokers restart in turn",
    cluster: { brokers: 3 },
    run: async (stage) => {
      const [leaseMs, staggerMs] = [2_000, 333];
      const [role, topic] = [stage.role(), await stage.topic()];
      const writtenAtMs: number[] = [];
      const lead: LeaderHandler = async (leadership, signal) => {
        for (; !signal.aborted; await sleep(20)) {
          const written = await leadership.write({ topic, value: "x" }).then(
            () => true,
            () => false,
          );
          if (written) writtenAtMs.push(performance.now());
        }
      };
      const stop = new AbortController();
      const members = [await stage.member("a", { leaseMs }), await stage.member("b", { leaseMs })];
      const campaigns = members.map(({ client, id }) => client.campaign(role, id, lead, { signal: stop.signal }));
      for (const { id } of members) await stage.registered(role, id);
      await stage.inSync(topic);
      const coordinatorId = await stage.coordinatorOf(role);
      const brokers = stage.cluster.brokers;
      const coordinator = brokers.find(({ id }) => id === coordinatorId);
      await until("the first write", () => writtenAtMs.length > 0);
      await coordinator?.stop();
      await sleep(5_000);
      await coordinator?.start();
      for (const broker of brokers) {
        await stage.inSync(topic);
        await broker.stop();
        await broker.start();
      }
      await sleep(1_000);
      stop.abort();
      await Promise.all(campaigns);
      writtenAtMs.push(performance.now());
      const gapsMs = writtenAtMs.slice(1).map((atMs, index) => atMs - (writtenAtMs[index] as number));
      console.log(`C1: ${writtenAtMs.length} writes, longest gap ${Math.max(...gapsMs).toFixed(0)} ms`);
      expect(Math.max(...gapsMs)).toBeLessThan(leaseMs + staggerMs + 5_000);
    },
  },
  {
    // A minute of idling at the broker's limit of 2 s becomes 7 s.
    title:
      "C3: a standby whose connections the broker closed for idleness takes over at its first attempt, as fast as a warm one",
    cluster: { settings: { "connections.max.idle.ms": "2000" } },
    run: async (stage) => {
      const warm = await takeOver(stage, "warm", 0);
      const cold = await takeOver(stage, "cold", 7_000);
      console.log(`C3: taken over after ${warm.tookMs.toFixed(0)} ms warm, ${cold.tookMs.toFixed(0)} ms cold`);
      expect(cold.mints).toBe(1);
      expect(cold.tookMs).toBeLessThan(warm.tookMs + 1_000);
    },
  },
];

/** Kills a leader after its standby idled, and measures how long the role is without a leader. */
const takeOver = async (stage: Stage, name: string, idleMs: number) => {
  const role = stage.role();
  const leader = await stage.member(`${name}-leader`, { leaseMs: 1_500 });
  await leader.client.acquire(role, leader.id, LIMIT);
  const standby = await stage.member(`${name}-standby`, { leaseMs: 1_500 });
  const won = standby.client.acquire(role, standby.id, LIMIT);
  await stage.registered(role, standby.id);
  await sleep(idleMs);
  const mintsBefore = standby.proxy.requests(INIT_PRODUCER_ID);
  leader.suspend();
  const startedAtMs = performance.now();
  await won;
  return { tookMs: performance.now() - startedAtMs, mints: standby.proxy.requests(INIT_PRODUCER_ID) - mintsBefore };
};
