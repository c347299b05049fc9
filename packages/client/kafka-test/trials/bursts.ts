import { expect } from "vitest";
import { LIMIT, until } from "./stage.js";
import type { Trial } from "./trial.js";

const TIMER_MS = 100;

/** Much at once: many records, and many takeovers. */
export const burstTrials: readonly Trial[] = [
  {
    title: "J3: one record is written within a second, and 50,000 at once hold up no timer for a second, nor the lease",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 15_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const startedAtMs = performance.now();
      await leadership.write({ topic, value: "one" });
      const oneMs = performance.now() - startedAtMs;
      let [latestMs, lateMs] = [performance.now(), 0];
      const timer = setInterval(() => {
        lateMs = Math.max(lateMs, performance.now() - latestMs - TIMER_MS);
        latestMs = performance.now();
      }, TIMER_MS);
      const many = Array.from({ length: 50_000 }, (_, index) => ({ topic, value: `${index}` }));
      const written = await leadership.write(many, LIMIT);
      const manyMs = performance.now() - startedAtMs - oneMs;
      // A last look, for a loop that was held up until the very end.
      await new Promise((resolve) => setTimeout(resolve, 2 * TIMER_MS));
      clearInterval(timer);
      console.log(
        `J3: 1 record in ${oneMs.toFixed(0)} ms, 50,000 in ${manyMs.toFixed(0)} ms; a timer late by ${lateMs.toFixed(0)} ms`,
      );
      expect(oneMs).toBeLessThan(1_000);
      expect(lateMs).toBeLessThan(1_000);
      expect(written).toHaveLength(50_000);
      await leadership.renew();
      expect(leadership.isLeader).toBe(true);
      expect(await stage.values(topic)).toEqual(["one", ...many.map(({ value }) => value)]);
    },
  },
  {
    // librdkafka tells a producer's pair by its periodic statistics only.
    title: "J4: over takeovers in quick succession each lease record has the pair that the coordinator holds",
    run: async (stage) => {
      const role = stage.role();
      // No renewal may put right what a grant got wrong.
      const options = { leaseMs: 10_000, autoRenew: false };
      const members = [await stage.member("a", options), await stage.member("b", options)];
      let former = -1n;
      for (let takeover = 0; takeover < 10; takeover++) {
        const { client, id } = members[takeover % 2] as (typeof members)[number];
        const leadership = await client.acquire(role, id, LIMIT);
        const { token } = leadership;
        expect(await stage.pairOf(role)).toEqual({ producerId: token.producerId, epoch: token.epoch });
        await until("the grant in the log", async () => (await stage.leaseTokenOf(role))?.equals(token) ?? false);
        expect(token.producerId).toBeGreaterThanOrEqual(0n);
        expect(token.epoch).toBe(takeover);
        expect(token.term).toBeGreaterThan(former);
        former = token.term;
        await leadership.resign();
      }
    },
  },
];
