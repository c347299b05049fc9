import { KrabkaError } from "@krabka/client";
import { expect } from "vitest";
import { LIMIT } from "./stage.js";
import type { Trial } from "./trial.js";

const MINUTE_MS = 60_000;
const WITHIN_MS = 5_000;

/** Lease, transaction and message time limits that depend on each other. */
export const transactionTimeoutTrials: readonly Trial[] = [
  {
    title: "B14: leases from a second to 20 minutes work at a broker's default settings",
    run: async (stage) => {
      for (const leaseMs of [1_000, 30_000, 6 * MINUTE_MS, 15 * MINUTE_MS - 1_000, 20 * MINUTE_MS]) {
        const [role, topic] = [stage.role(), await stage.topic()];
        const member = await stage.member("a", { leaseMs });
        const startedAtMs = performance.now();
        const leadership = await member.client.acquire(role, member.id, LIMIT);
        await leadership.write({ topic, value: "led" });
        await leadership.renew();
        expect(performance.now() - startedAtMs).toBeLessThan(WITHIN_MS);
        expect(leadership.remainingMs).toBeGreaterThan(leaseMs - WITHIN_MS);
        await leadership.resign();
        expect(await stage.values(topic)).toEqual(["led"]);
      }
    },
  },
  {
    title:
      "B14: a transaction timeout over the broker's maximum is refused at once and named, and leaves no registration",
    cluster: { settings: { "transaction.max.timeout.ms": "20000" } },
    run: async (stage) => {
      const role = stage.role();
      const fitting = await stage.member("fitting", { leaseMs: 15_000 });
      await (await fitting.client.acquire(role, fitting.id, LIMIT)).resign();
      for (const leaseMs of [30_000, 20 * MINUTE_MS]) {
        const member = await stage.member("a", { leaseMs });
        const startedAtMs = performance.now();
        const error = await member.client.acquire(role, member.id, LIMIT).catch((reason: unknown) => reason);
        expect(performance.now() - startedAtMs).toBeLessThan(WITHIN_MS);
        expect(KrabkaError.is(error) && error.code).toBe("INVALID_ARGUMENT");
        const { message } = error as KrabkaError;
        expect(message).toContain(`timeout of ${Math.min(leaseMs, MINUTE_MS)} ms`);
        // librdkafka's binding can't read a broker's settings, so there the maximum is named without its value.
        expect(message).toMatch(/over the broker's transaction\.max\.timeout\.ms( of 20000 ms)?$/);
        for await (const { roster } of fitting.client.observe(role)) {
          expect(roster).toEqual([]);
          break;
        }
      }
    },
  },
];
