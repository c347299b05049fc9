import type { WriteOutcome } from "@krabka/core";
import { expect } from "vitest";
import { type Bench, command, positionsOf, rejection } from "./bench.js";
import type { ConformanceTest } from "./conformance-test.js";
import type { WireFault } from "./harness.js";

/** A session may go on only under a new epoch, or is at its end where the backend can't re-mint. */
const goesOnAfterRemint = async (bench: Bench, session: Awaited<ReturnType<Bench["mint"]>>, topic: string) => {
  if (bench.subject.unsupported.conditionalRemint !== undefined) return;
  expect(session.mustRemint).toBe(true);
  expect(await rejection(session.commit([command(topic, "too early")]))).toBe("UNKNOWN_OUTCOME");
  await session.remint();
  expect(session.mustRemint).toBe(false);
  expect(await bench.harness.describeRole(session.role)).toEqual(session.pair);
  positionsOf(await session.commit([command(topic, "next")]));
};

const lostInTransaction = (api: WireFault["api"]): ConformanceTest => ({
  title: `a lost answer to ${api} leaves one effect, and the outcome says what is there`,
  needs: ["loseAnswers"],
  run: async (bench) => {
    const topic = await bench.topic();
    const session = await bench.mint(await bench.faultyTransport(), bench.role());
    const fault = await bench.harness.injectFault({ api, effect: "lose-answer" });
    const outcome = await session.commit([command(topic, "once")], { timeoutMs: bench.harness.patienceMs });
    await fault.hit;
    const values = await bench.decidedValues(topic);
    if (outcome.status === "committed") expect(values).toEqual(["once"]);
    else if (outcome.status === "aborted") expect(values).toEqual([]);
    else expect.unreachable(`nobody took over, and there was time to settle it; got ${outcome.status}`);
  },
});

/** What is known of a write when an answer was lost, a request came late, or a rival came in between. */
export const ambiguityTests: readonly ConformanceTest[] = [
  {
    title: "a lost answer to EndTxn is settled within the call: committed, once, and the next write needs a new epoch",
    needs: ["loseAnswers"],
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.mint(await bench.faultyTransport(), bench.role());
      const fault = await bench.harness.injectFault({ api: "EndTxn", effect: "lose-answer" });
      const outcome = await session.commit([command(topic, "once")], { timeoutMs: bench.harness.patienceMs });
      await fault.hit;
      expect(positionsOf(outcome).length).toBe(1);
      await goesOnAfterRemint(bench, session, topic);
      expect((await bench.decidedValues(topic)).filter((value) => value === "once")).toEqual(["once"]);
      expect(await bench.decidedValues(topic)).not.toContain("too early");
    },
  },
  lostInTransaction("AddPartitionsToTxn"),
  lostInTransaction("Produce"),
  {
    title: "a lost answer to a fenced append is settled by repeating it: committed, once",
    needs: ["loseAnswers", "fencedAppend"],
    run: async (bench) => {
      const role = bench.role();
      const session = await bench.mint(await bench.faultyTransport(), role);
      positionsOf(await bench.writeLease(session));
      const fault = await bench.harness.injectFault({ api: "Produce", effect: "lose-answer" });
      const [position] = positionsOf(await bench.writeLease(session, { timeoutMs: bench.harness.patienceMs }));
      await fault.hit;
      const found = await bench.harness.readCommitted(bench.home(role));
      expect(found.map(({ offset }) => offset)).toEqual([0n, position?.offset]);
      if (session.mustRemint) await session.remint();
      positionsOf(await bench.writeLease(session));
    },
  },
  {
    title: "after a lost answer to the mint, the next openSession ends with the pair that the broker holds",
    needs: ["loseAnswers"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const transport = await bench.faultyTransport();
      const fault = await bench.harness.injectFault({ api: "InitProducerId", effect: "lose-answer" });
      const mint = bench.mint(transport, role, { timeoutMs: bench.harness.patienceMs });
      expect(["TIMEOUT", "UNREACHABLE"]).toContain(await rejection(mint));
      await fault.hit;
      const session = await bench.mint(transport, role);
      expect(await bench.harness.describeRole(role)).toEqual(session.pair);
      positionsOf(await session.commit([command(topic, "first")]));
    },
  },
  {
    title: "a lost answer to remint costs no more than a repetition",
    needs: ["loseAnswers", "conditionalRemint"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.mint(await bench.faultyTransport(), role);
      const fault = await bench.harness.injectFault({ api: "InitProducerId", effect: "lose-answer" });
      try {
        await session.remint({ timeoutMs: bench.harness.patienceMs });
      } catch {
        await session.remint();
      }
      await fault.hit;
      expect(await bench.harness.describeRole(role)).toEqual(session.pair);
      positionsOf(await session.commit([command(topic, "next")]));
    },
  },
  {
    title: "a commit whose answer was lost before a rival's mint is not called fenced or aborted",
    needs: ["loseAnswers", "holdRequests"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.mint(await bench.faultyTransport(), role);
      await bench.harness.injectFault({ api: "EndTxn", effect: "lose-answer" });
      const repeated = await bench.harness.injectFault({ api: "EndTxn", effect: "hold-request" });
      const commit = session.commit([command(topic, "there")], { timeoutMs: bench.harness.patienceMs });
      await repeated.hit;
      await bench.session(role);
      await repeated.release();
      expect(["committed", "unknown"]).toContain((await commit).status);
      expect(await bench.decidedValues(topic)).toEqual(["there"]);
    },
  },
  {
    title: "an append whose answer was lost before a rival's first record is not called fenced or aborted",
    needs: ["loseAnswers", "holdRequests", "fencedAppend"],
    run: async (bench) => {
      const role = bench.role();
      const session = await bench.mint(await bench.faultyTransport(), role);
      await bench.harness.injectFault({ api: "Produce", effect: "lose-answer" });
      const repeated = await bench.harness.injectFault({ api: "Produce", effect: "hold-request" });
      const append = bench.writeLease(session, { timeoutMs: bench.harness.patienceMs });
      await repeated.hit;
      positionsOf(await bench.writeLease(await bench.session(role)));
      await repeated.release();
      expect(["committed", "unknown"]).toContain((await append).status);
      expect((await bench.harness.readCommitted(bench.home(role))).length).toBe(2);
    },
  },
  {
    title: "a remint that arrives after a rival's mint is refused and leaves the rival alone",
    needs: ["holdRequests", "conditionalRemint"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.mint(await bench.faultyTransport(), role);
      const late = await bench.harness.injectFault({ api: "InitProducerId", effect: "hold-request" });
      const remint = rejection(session.remint({ timeoutMs: bench.harness.patienceMs }));
      await late.hit;
      const rival = await bench.session(role);
      await late.release();
      expect(await remint).toBe("FENCED");
      expect(await bench.harness.describeRole(role)).toEqual(rival.pair);
      positionsOf(await rival.commit([command(topic, "rival")]));
      expect((await session.commit([command(topic, "zombie")])).status).toBe("fenced");
      expect(await bench.decidedValues(topic)).toEqual(["rival"]);
    },
  },
  {
    title: "an EndTxn that comes late has no effect on the transaction after it (A2)",
    needs: ["holdRequests", "conditionalRemint"],
    run: async (bench) => {
      const topic = await bench.topic(2);
      const session = await bench.mint(await bench.faultyTransport(), bench.role());
      const late = await bench.harness.injectFault({ api: "EndTxn", effect: "hold-request" });
      const first = await session.commit([command(topic, "first", 0)], { timeoutMs: 1_000 });
      await late.hit;
      expect(first.status).toBe("unknown");
      expect(await rejection(session.commit([command(topic, "too early", 0)]))).toBe("UNKNOWN_OUTCOME");
      const settled = await session.remint();
      const middle = await bench.harness.injectFault({ api: "Produce", effect: "hold-request" });
      const second = session.commit([command(topic, "second", 0), command(topic, "second", 1)], {
        timeoutMs: bench.harness.patienceMs,
      });
      await middle.hit;
      await late.release();
      await middle.release();
      positionsOf(await second);
      const expected = settled?.status === "committed" ? ["first", "second"] : ["second"];
      expect(["committed", "aborted"]).toContain(settled?.status);
      expect(await bench.decidedValues(topic, 0)).toEqual(expected);
      expect(await bench.decidedValues(topic, 1)).toEqual(["second"]);
    },
  },
  {
    title: "a write that ran into its limit is unknown, and remint settles it for good",
    needs: ["holdRequests", "conditionalRemint"],
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.mint(await bench.faultyTransport(), bench.role());
      const held = await bench.harness.injectFault({ api: "Produce", effect: "hold-request" });
      const outcome = await session.commit([command(topic, "late")], { timeoutMs: 1_000 });
      await held.hit;
      expect(outcome.status).toBe("unknown");
      expect(session.mustRemint).toBe(true);
      const settled = await session.remint();
      expect(settled?.status).toBe("aborted");
      await held.release();
      positionsOf(await session.commit([command(topic, "next")]));
      expect(await bench.decidedValues(topic)).toEqual(["next"]);
    },
  },
  {
    title: "after a cut in the middle of work every outcome is true",
    needs: ["cutConnections"],
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.mint(await bench.faultyTransport(), bench.role());
      const limit = { timeoutMs: bench.harness.patienceMs };
      positionsOf(await session.commit([command(topic, "warm")]));
      const writes = Array.from({ length: 20 }, (_, index) =>
        session.commit([command(topic, `${index}`)], limit).catch((error: unknown) => error as Error),
      );
      await writes[2];
      await bench.harness.cutConnections();
      const outcomes = await Promise.all(writes);
      const values = await bench.decidedValues(topic);
      for (const [index, outcome] of outcomes.entries()) {
        const seen = values.filter((value) => value === `${index}`).length;
        const status = outcome instanceof Error ? "not sent" : (outcome as WriteOutcome).status;
        if (status === "committed") expect(seen).toBe(1);
        else if (status !== "unknown") expect(seen).toBe(0);
      }
    },
  },
];
