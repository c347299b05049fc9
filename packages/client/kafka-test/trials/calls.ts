import { type Leadership, type Logger, MemberId } from "@krabka/client";
import { expect } from "vitest";
import { resultOf } from "./incumbent.js";
import { LIMIT, until } from "./stage.js";
import { runsOr, type Trial } from "./trial.js";
import { END_TXN, endTxnAnswer, isCommit, TRANSACTION_ABORTABLE } from "./wire-answers.js";

/** How late a timer of 10 ms fires at the worst, until it is stopped. */
const watchEventLoop = (): (() => number) => {
  let [latestMs, driftMs] = [performance.now(), 0];
  const timer = setInterval(() => {
    driftMs = Math.max(driftMs, performance.now() - latestMs - 10);
    latestMs = performance.now();
  }, 10);
  return () => {
    clearInterval(timer);
    return driftMs;
  };
};

/** Longer than brokers take by default, so that the broker refuses it when its transaction has begun. */
const TOO_LARGE_FOR_BROKERS = "x".repeat(5_000_000);
/** Longer than a client takes that is set up for records of 10 MB. */
const TOO_LARGE_FOR_CLIENTS = "x".repeat(11_000_000);

/** Calls that fail, come all at once, or come after the end. */
export const callTrials: readonly Trial[] = [
  {
    title: "B3: a write that is empty, or fails before its first record is sent, costs neither term nor time",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const complaints: unknown[] = [];
      const complain = (details: object, message: string) => complaints.push({ details, message });
      const logger: Logger = { debug() {}, info() {}, warn: complain, error: complain };
      const member = await stage.member("a", { leaseMs: 10_000, logger });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const { token } = leadership;
      // What is said of a topic on a single broker.
      complaints.length = 0;
      const failingBuild = () =>
        leadership.transaction((scope) => {
          scope.write({ topic, value: "never" });
          throw new TypeError("no serialiser for this");
        });
      const cases: readonly (readonly [string, () => Promise<unknown>])[] = [
        ["written", () => leadership.write([])],
        ["written", () => leadership.transaction(() => undefined)],
        ["TypeError", failingBuild],
        ["INVALID_ARGUMENT", () => leadership.write({ topic, value: 1 as never })],
        ["INVALID_ARGUMENT", () => leadership.write({ topic, partition: 99, value: "never" })],
        ["ABORTED", () => leadership.write({ topic, value: "never" }, { signal: AbortSignal.abort() })],
        // Its transaction begins, and is ended without a record.
        ["NOT_COMMITTED", () => leadership.write({ topic, value: TOO_LARGE_FOR_CLIENTS })],
      ];
      let writes = 0;
      const writesAtOnce = async (): Promise<void> => {
        const startedAtMs = performance.now();
        await leadership.write({ topic, value: `${writes++}` });
        expect(performance.now() - startedAtMs).toBeLessThan(1_000);
      };
      // Under a pair that never had a transaction.
      expect(await resultOf(leadership.write([]))).toBe("written");
      for (const [expected, call] of cases) {
        await writesAtOnce();
        expect(await resultOf(call())).toBe(expected);
        await writesAtOnce();
      }
      const results = Promise.all(cases.map(([, call]) => resultOf(call())));
      expect(await results).toEqual(cases.map(([expected]) => expected));
      await writesAtOnce();
      expect(leadership.token.equals(token)).toBe(true);
      expect(await stage.values(topic)).toEqual(Array.from({ length: writes }, (_, write) => `${write}`));
      expect(complaints).toEqual([]);
    },
  },
  {
    title: "B7: after a fence write, renew, resign and close settle within their limits, and the event loop goes on",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 60_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      await stage.strangerSession(role);
      const drift = watchEventLoop();
      const tookMs: number[] = [];
      const timed = async (call: Promise<unknown>): Promise<string> => {
        const startedAtMs = performance.now();
        const result = await resultOf(call);
        tookMs.push(performance.now() - startedAtMs);
        return result;
      };
      const zombie = (): Promise<unknown> => leadership.write({ topic, value: "zombie" }, { timeoutMs: 2_000 });
      const results = await Promise.all([timed(zombie()), timed(leadership.resign({ timeoutMs: 2_000 }))]);
      expect(results[0]).toMatch(/^(FENCED|NOT_LEADER)$/);
      // All the same on a producer that is dead by now.
      for (const call of [zombie, () => leadership.renew()]) {
        expect(await timed(call())).toMatch(/^(FENCED|NOT_LEADER)$/);
      }
      await timed(leadership.resign({ timeoutMs: 2_000 }));
      expect(await timed(member.client.close())).toBe("written");
      const driftMs = drift();
      console.log(
        `B7: settled after ${tookMs.map((ms) => ms.toFixed(0)).join(", ")} ms; drift ${driftMs.toFixed(0)} ms`,
      );
      expect(Math.max(...tookMs)).toBeLessThan(2_500);
      expect(driftMs).toBeLessThan(100);
      expect(await stage.values(topic)).toEqual([]);
    },
  },
  {
    title: "B9: 50 writes, 5 renewals and a resignation at once settle with the truth, and nothing follows the release",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const [a, b] = [await stage.member("a", { leaseMs: 10_000 }), await stage.member("b", { leaseMs: 10_000 })];
      const told: string[] = [];
      for (let round = 0; round < runsOr(5); round++) {
        const leadership = await a.client.acquire(role, a.id, LIMIT);
        const heir = b.client.acquire(role, b.id, LIMIT);
        await stage.registered(role, b.id);
        // From first to last of all calls, over the rounds.
        const resignAt = (round * 13) % 50;
        const writes: Promise<unknown>[] = [];
        const others: Promise<unknown>[] = [];
        for (let write = 0; write < 50; write++) {
          if (write % 10 === 5) others.push(resultOf(leadership.renew()));
          if (write === resignAt) others.push(resultOf(leadership.resign()));
          writes.push(resultOf(leadership.write({ topic, value: `${round}-${write}` })));
        }
        const results = await Promise.all(writes);
        expect(results).toEqual(results.map((_, write) => (write < resignAt ? "written" : "NOT_LEADER")));
        for (const result of await Promise.all(others)) expect(["written", "NOT_LEADER"]).toContain(result);
        expect(leadership.loss?.reason).toBe("resigned");
        told.push(...results.flatMap((result, write) => (result === "written" ? [`${round}-${write}`] : [])));
        const successor = await heir;
        await successor.write({ topic, value: `${round}-heir` });
        told.push(`${round}-heir`);
        await successor.resign();
      }
      expect(await stage.values(topic)).toEqual(told);
    },
  },
  {
    title: "B13: a write whose abort is refused for ever is aborted at most 3 times, with the first error told",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 3_000 });
      const standby = await stage.member("b", { leaseMs: 3_000 });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      const next = standby.client.acquire(role, standby.id, LIMIT);
      await stage.registered(role, MemberId.of("b"));
      const abort = member.proxy.inject({
        apiKey: END_TXN,
        when: (request) => !isCommit(request),
        times: 1_000,
        action: { answer: () => endTxnAnswer(TRANSACTION_ABORTABLE) },
      });
      const failed: unknown = await leadership.write({ topic, value: TOO_LARGE_FOR_BROKERS }).catch((error) => error);
      expect(failed).toMatchObject({ code: "NOT_COMMITTED" });
      const causes = causesOf(failed);
      expect(causes[0]).toMatch(/\(10\)/);
      expect(causes.slice(1).join()).toMatch(/\(120\)/);
      expect(await resultOf(untilLost(leadership, topic))).toBe("written");
      const successor = await next;
      await successor.write({ topic, value: "successor" });
      expect(abort.hits).toBeGreaterThan(0);
      expect(abort.hits).toBeLessThanOrEqual(3);
      expect(await stage.values(topic)).toEqual(["successor"]);
    },
  },
];

/** Writes on until the leadership is lost. */
const untilLost = (leadership: Leadership, topic: string): Promise<void> =>
  until("the loss", async () => {
    expect(await resultOf(leadership.write({ topic, value: "after the abort" }))).not.toBe("written");
    return leadership.loss !== undefined;
  });

/** The messages behind an error, the nearest first. */
const causesOf = (error: unknown): string[] => {
  const { cause } = error as Error;
  return cause instanceof Error ? [cause.message, ...causesOf(cause)] : [];
};
