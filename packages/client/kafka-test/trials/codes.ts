import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { Incumbent, resultOf } from "./incumbent.js";
import { LIMIT, type Stage } from "./stage.js";
import type { Trial } from "./trial.js";
import {
  ADD_PARTITIONS_TO_TXN,
  END_TXN,
  endTxnAnswer,
  INIT_PRODUCER_ID,
  initProducerIdAnswer,
  isCommit,
} from "./wire-answers.js";

// Numbers and names: Kafka's Errors.java.
const FENCES = [47, 90, 49];
const PASSING = [51, 14, 15, 16];
const GIVEN_UP = [59, 48, 120];
const CONFIGURATION = [50, 53];
const COORDINATOR_FENCED = 52;
const UNHEARD_OF = [-1, 9_999];
/** Long enough for a fault that lasts to use it up. */
const WRITE_LIMIT = { timeoutMs: 1_500 };

const start = async (stage: Stage) => {
  const [role, topic] = [stage.role(), await stage.topic()];
  const member = await stage.member("a", { leaseMs: 10_000 });
  const incumbent = new Incumbent(member, role);
  /** Answers commits with a code instead of the coordinator. */
  const answerCommits = (code: number, times: number) =>
    member.proxy.inject({ apiKey: END_TXN, when: isCommit, times, action: { answer: () => endTxnAnswer(code) } });
  const requests = (apiKey: number): number => member.proxy.requests(apiKey);
  return { role, topic, member, incumbent, answerCommits, requests };
};

/** What each error code does, where the coordinator gives it in the place of the true answer. */
export const codeTrials: readonly Trial[] = [
  {
    title: "B12: each code of a fence deposes whoever wanted to commit, and nothing of the write is sent again",
    run: async (stage) => {
      const { topic, incumbent, answerCommits, requests } = await start(stage);
      for (const code of FENCES) {
        const leadership = await incumbent.lead();
        const fault = answerCommits(code, 1);
        expect(await resultOf(leadership.write({ topic, value: `refused with ${code}` }))).toBe("FENCED");
        expect(leadership.loss?.reason).toBe("fenced");
        expect(fault.hits).toBe(1);
        const sent = () => [requests(END_TXN), requests(ADD_PARTITIONS_TO_TXN), requests(INIT_PRODUCER_ID)];
        const before = sent();
        expect(await resultOf(leadership.write({ topic, value: "after the end" }))).toBe("FENCED");
        await sleep(500);
        expect(sent()).toEqual(before);
        await incumbent.write(topic, `after ${code}`);
      }
      expect(await stage.values(topic)).toEqual(FENCES.map((code) => `after ${code}`));
    },
  },
  {
    title: "B12: a coordinator that is busy, loading or elsewhere is asked again, and the write is committed once",
    run: async (stage) => {
      const { topic, incumbent, answerCommits } = await start(stage);
      for (const code of PASSING) {
        const leadership = await incumbent.lead();
        const fault = answerCommits(code, 1);
        expect(await resultOf(leadership.write({ topic, value: `${code}` }))).toBe("written");
        expect(fault.hits).toBe(1);
        // After a repeated commit a session may be at its end, which its next use finds out.
        await leadership.renew().catch(() => undefined);
      }
      expect(await stage.values(topic)).toEqual(PASSING.map(String));
    },
  },
  {
    title: "B12: a refused transaction is given up, and only who is still entitled mints again",
    run: async (stage) => {
      const { role, topic, incumbent, answerCommits, requests } = await start(stage);
      for (const code of GIVEN_UP) {
        const leadership = await incumbent.lead();
        const fault = answerCommits(code, 1);
        expect(await resultOf(leadership.write({ topic, value: `refused with ${code}` }))).toBe("NOT_COMMITTED");
        expect(fault.hits).toBe(1);
        await incumbent.write(topic, `after ${code}`);
        const before = await incumbent.lead();
        answerCommits(code, 1);
        expect(await resultOf(before.write({ topic, value: `again ${code}` }))).toBe("NOT_COMMITTED");
        await stage.strangerSession(role);
        const minted = requests(INIT_PRODUCER_ID);
        expect(await resultOf(before.write({ topic, value: "zombie" }))).toMatch(/^(FENCED|NOT_LEADER)$/);
        expect(requests(INIT_PRODUCER_ID)).toBe(minted);
      }
      await incumbent.lead();
      expect(await stage.values(topic)).toEqual(GIVEN_UP.map((code) => `after ${code}`));
    },
  },
  {
    title: "B12: a mint that is refused for a setting or a right is told at once, and not repeated",
    run: async (stage) => {
      const { role, member } = await start(stage);
      for (const code of CONFIGURATION) {
        const fault = member.proxy.inject({
          apiKey: INIT_PRODUCER_ID,
          // Not the one of a producer without a role, such as may write the registrations.
          when: ({ body }) => body.includes(role),
          times: 1_000,
          action: { answer: initProducerIdAnswer(code) },
        });
        const result = await resultOf(member.client.acquire(role, member.id, LIMIT));
        expect(result).toBe(code === 53 ? "UNAUTHORIZED" : "INVALID_ARGUMENT");
        await sleep(500);
        expect(fault.hits).toBe(1);
        fault.cancel();
      }
    },
  },
  {
    title: "B12: a code that nobody knows, as the answer to a commit, is an unknown outcome",
    run: async (stage) => {
      const { topic, incumbent, answerCommits } = await start(stage);
      const certain: string[] = [];
      for (const code of [...UNHEARD_OF, COORDINATOR_FENCED]) {
        const first = await incumbent.lead();
        const once = answerCommits(code, 1);
        const result = await resultOf(first.write({ topic, value: `once ${code}` }));
        expect(once.hits).toBe(1);
        // Asked once more, the coordinator may have told what became of it.
        expect(result).toMatch(/^(written|UNKNOWN_OUTCOME)$/);
        if (result === "written") certain.push(`once ${code}`);
        await incumbent.write(topic, `after once ${code}`);
        const second = await incumbent.lead();
        const always = answerCommits(code, 1_000);
        expect(await resultOf(second.write({ topic, value: `always ${code}` }, WRITE_LIMIT))).toBe("UNKNOWN_OUTCOME");
        always.cancel();
        await incumbent.write(topic, `after always ${code}`);
        certain.push(`after once ${code}`, `after always ${code}`);
      }
      const values = await stage.values(topic);
      expect(new Set(values).size).toBe(values.length);
      expect(values.filter((value) => certain.includes(value))).toEqual(certain);
    },
  },
  {
    title: "B12: once a commit's answer was lost, no refusal of its repetition is taken for a no",
    run: async (stage) => {
      const { topic, member, incumbent, answerCommits } = await start(stage);
      const codes = [...FENCES, ...CONFIGURATION, 59, 120, ...UNHEARD_OF];
      for (const code of codes) {
        const leadership = await incumbent.lead();
        const lost = member.proxy.inject({ apiKey: END_TXN, when: isCommit, action: "cut-after" });
        const always = answerCommits(code, 1_000);
        const result = await resultOf(leadership.write({ topic, value: `lost ${code}` }, WRITE_LIMIT));
        expect([code, result]).toEqual([code, "UNKNOWN_OUTCOME"]);
        expect([lost.hits, always.hits > 0]).toEqual([1, true]);
        always.cancel();
        await incumbent.write(topic, `after ${code}`);
      }
      expect(await stage.values(topic)).toEqual(codes.flatMap((code) => [`lost ${code}`, `after ${code}`]));
    },
  },
];
