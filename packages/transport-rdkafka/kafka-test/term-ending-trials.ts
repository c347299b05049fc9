import { KrabkaError } from "@krabka/client";
import { expect } from "vitest";
import { Incumbent, resultOf } from "../../client/kafka-test/trials/incumbent.js";
import { LIMIT } from "../../client/kafka-test/trials/stage.js";
import { runsOr, type Trial } from "../../client/kafka-test/trials/trial.js";
import {
  ADD_PARTITIONS_TO_TXN,
  addPartitionsAnswer,
  COORDINATOR_NOT_AVAILABLE,
  END_TXN,
  endTxnAnswer,
  isCommit,
} from "../../client/kafka-test/trials/wire-answers.js";

/** Trials whose shared bodies go on under a new epoch of the same term, where here the term ends and another begins. */
export const termEndingTrials: readonly Trial[] = [
  {
    title: "B2: a caller that leads and reads again has each write exactly once, though every commit's answer is lost",
    run: async (stage) => {
      const [role, topic, runs] = [stage.role(), await stage.topic(), runsOr(20)];
      const member = await stage.member("a", { leaseMs: 8_000 });
      const incumbent = new Incumbent(member, role);
      let unknown = 0;
      for (let run = 0; run < runs; run++) {
        const value = `${run}`;
        const leadership = await incumbent.lead();
        // The first commit's repetitions lose their answers too, so that the call can't settle it.
        const lost = member.proxy.inject({
          apiKey: END_TXN,
          when: isCommit,
          times: run === 0 ? 1_000 : 1,
          action: run === 0 ? "drop-answer" : "cut-after",
        });
        const write = leadership.write({ topic, value }, { timeoutMs: 2_000 });
        const error = await write.then(
          () => undefined,
          (reason: unknown) => reason,
        );
        lost.cancel();
        expect(lost.hits).toBeGreaterThan(0);
        // The next use of the leadership finds its session at its end.
        await leadership.renew().catch(() => undefined);
        if (error === undefined) continue;
        expect(KrabkaError.is(error) && error.code).toBe("UNKNOWN_OUTCOME");
        unknown += 1;
        if (!(await stage.values(topic)).includes(value)) await incumbent.write(topic, value);
      }
      console.log(`B2: ${runs} lost answers, of which ${unknown} were not settled within the call`);
      expect(unknown).toBeGreaterThan(0);
      expect(await stage.values(topic)).toEqual(Array.from({ length: runs }, (_, run) => `${run}`));
    },
  },
  {
    title: "B4: one failed EndTxn(commit), EndTxn(abort) or AddPartitionsToTxn does not keep the next write for 5 s",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 10_000 });
      const incumbent = new Incumbent(member, role);
      const failing = endTxnAnswer(COORDINATOR_NOT_AVAILABLE);
      const answer = addPartitionsAnswer(COORDINATOR_NOT_AVAILABLE);
      const faults = [
        { apiKey: END_TXN, when: isCommit, action: { answer: () => failing }, value: "commit" },
        { apiKey: END_TXN, action: { answer: () => failing }, value: "x".repeat(5_000_000) },
        { apiKey: ADD_PARTITIONS_TO_TXN, action: { answer }, value: "add" },
      ];
      const expected: string[] = [];
      for (const { value, ...rule } of faults) {
        const leadership = await incumbent.lead();
        const fault = member.proxy.inject(rule);
        const result = await resultOf(leadership.write({ topic, value }));
        expect(result).not.toBe("UNKNOWN_OUTCOME");
        if (result === "written") expected.push(value);
        expect(fault.hits).toBe(1);
        const healedAtMs = performance.now();
        await incumbent.write(topic, "next");
        expected.push("next");
        expect(performance.now() - healedAtMs).toBeLessThan(5_000);
        // Nothing of the fault is left for the next one.
        await (await incumbent.lead()).resign();
      }
      expect(await stage.values(topic)).toEqual(expected);
    },
  },
  {
    title: "B4: a grant whose commit had to be repeated is given again, so that the term's first write works",
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic()];
      const member = await stage.member("a", { leaseMs: 10_000 });
      const failing = endTxnAnswer(COORDINATOR_NOT_AVAILABLE);
      const fault = member.proxy.inject({ apiKey: END_TXN, when: isCommit, action: { answer: () => failing } });
      const leadership = await member.client.acquire(role, member.id, LIMIT);
      expect(fault.hits).toBe(1);
      await leadership.write({ topic, value: "first" });
      expect(await stage.values(topic)).toEqual(["first"]);
    },
  },
];
