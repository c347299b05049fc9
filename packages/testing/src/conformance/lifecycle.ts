import type { TransportCapabilities, WriteOutcome } from "@krabka/core";
import { expect } from "vitest";
import { command, DEFAULT_TRANSACTION_TIMEOUT_MS, freshName, positionsOf, rejection } from "./bench.js";
import type { ConformanceTest } from "./conformance-test.js";

const SESSION = { transactionTimeoutMs: DEFAULT_TRANSACTION_TIMEOUT_MS, mayMint: () => true };

/** Beginning and end, limits and signals, and the answers about what is not there. */
export const lifecycleTests: readonly ConformanceTest[] = [
  {
    title: "the transport declares what it can do, and gives a reason for the rest",
    run: async (bench) => {
      const { capabilities } = await bench.transport();
      for (const name of Object.keys(capabilities) as (keyof TransportCapabilities)[]) {
        const capability = capabilities[name];
        expect([name, capability.supported]).toEqual([name, bench.subject.unsupported[name] === undefined]);
        if (!capability.supported) expect(capability.reason).not.toBe("");
      }
    },
  },
  {
    title: "what the transport does not support rejects with UNSUPPORTED",
    run: async (bench) => {
      const transport = await bench.transport();
      const { capabilities } = transport;
      const session = await bench.mint(transport, bench.role());
      const home = bench.home(session.role);
      if (!capabilities.fencedAppend.supported) {
        expect(await rejection(session.append(home, [bench.lease(session)]))).toBe("UNSUPPORTED");
        expect(await rejection(session.retire(0n, home, bench.lease(session)))).toBe("UNSUPPORTED");
      }
      if (!capabilities.conditionalRemint.supported) expect(await rejection(session.remint())).toBe("UNSUPPORTED");
      if (!capabilities.describe.supported) {
        expect(await rejection(transport.describe(session.role))).toBe("UNSUPPORTED");
      }
      positionsOf(await bench.writeLease(session));
    },
  },
  {
    title: "prepare creates the coordination topic once, and tells the same to everybody",
    run: async (bench) => {
      const transport = bench.unpreparedTransport();
      const [first, second] = await Promise.all([transport.prepare(), transport.prepare()]);
      expect(first.topic).toEqual(bench.coordination);
      expect(second).toEqual(first);
      expect((await bench.unpreparedTransport().prepare()).topic).toEqual(bench.coordination);
      expect(await transport.partitionsOf(bench.coordination.name)).toBe(bench.coordination.partitions);
    },
  },
  {
    title: "prepare refuses a topic that is deleted by age, or has another number of partitions (C9)",
    run: async (bench) => {
      const name = await bench.topic(2);
      expect(await rejection(bench.unpreparedTransport({ name, partitions: 2 }).prepare())).toBe("TOPIC_MISCONFIGURED");
      await bench.transport();
      const topic = { ...bench.coordination, partitions: bench.coordination.partitions + 1 };
      expect(await rejection(bench.unpreparedTransport(topic).prepare())).toBe("TOPIC_MISCONFIGURED");
    },
  },
  {
    title: "partitionsOf counts the partitions of a topic, and knows when there is none",
    run: async (bench) => {
      const transport = await bench.transport();
      expect(await transport.partitionsOf(await bench.topic(3))).toBe(3);
      const unknown = transport.partitionsOf("no-such-topic-here", { timeoutMs: bench.harness.patienceMs });
      expect(await rejection(unknown)).toBe("UNKNOWN_TOPIC");
    },
  },
  {
    title: "describe of a role that was never minted gives no pair",
    needs: ["describe"],
    run: async (bench) => {
      const transport = await bench.transport();
      expect((await transport.describe(bench.role())).pair).toBeUndefined();
    },
  },
  {
    title: "openSession asks right before the mint, and sends nothing when told no",
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const session = await bench.mint(transport, role);
      let asked = 0;
      const mayMint = () => {
        asked += 1;
        return false;
      };
      expect(await rejection(transport.openSession(role, { ...SESSION, mayMint }))).toBe("BUSY");
      expect(asked).toBe(1);
      expect(await bench.harness.describeRole(role)).toEqual(session.pair);
    },
  },
  {
    title: "openSession refuses a transaction timeout that the broker does not allow (B14)",
    run: async (bench) => {
      const transport = await bench.transport();
      const opening = transport.openSession(bench.role(), { ...SESSION, transactionTimeoutMs: 2 ** 31 - 1 });
      expect(await rejection(opening)).toBe("INVALID_ARGUMENT");
    },
  },
  {
    title: "a signal that fired before the call keeps everything from being sent",
    run: async (bench) => {
      const transport = await bench.transport();
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.mint(transport, role);
      const signal = AbortSignal.abort(new Error("enough"));
      const outcome = await session.commit([command(topic, "never")], { signal });
      expect(outcome.status).toBe("aborted");
      expect(await rejection(transport.openSession(role, { ...SESSION, signal }))).toBe("ABORTED");
      expect(await rejection(transport.partitionsOf(topic, { signal }))).toBe("ABORTED");
      expect(await rejection(bench.follow(transport, role).feed.sync({ signal }))).toBe("ABORTED");
      expect(await bench.harness.describeRole(role)).toEqual(session.pair);
      expect(session.mustRemint).toBe(false);
      positionsOf(await session.commit([command(topic, "next")]));
      expect(await bench.decidedValues(topic)).toEqual(["next"]);
    },
  },
  {
    title: "a call ends at its own limit when no answer comes",
    needs: ["holdRequests"],
    run: async (bench) => {
      const transport = await bench.faultyTransport();
      const topic = await bench.topic();
      const session = await bench.mint(transport, bench.role());
      positionsOf(await session.commit([command(topic, "warm")]));
      const produce = await bench.harness.injectFault({ api: "Produce", effect: "hold-request" });
      const commit = await bench.timed(() => session.commit([command(topic, "late")], { timeoutMs: 300 }));
      expect(commit.result.status).toBe("unknown");
      expect(commit.tookMs).toBeLessThan(1_300);
      await produce.release();
      const mint = await bench.harness.injectFault({ api: "InitProducerId", effect: "hold-request" });
      const open = await bench.timed(() =>
        rejection(transport.openSession(bench.role(), { ...SESSION, timeoutMs: 300 })),
      );
      expect(open.result).toBe("TIMEOUT");
      expect(open.tookMs).toBeLessThan(1_300);
      await mint.release();
    },
  },
  {
    title: "a write that waits behind a slow one still ends at its own limit, with nothing sent",
    needs: ["holdRequests"],
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.mint(await bench.faultyTransport(), bench.role());
      positionsOf(await session.commit([command(topic, "warm")]));
      const held = await bench.harness.injectFault({ api: "Produce", effect: "hold-request" });
      const slow = session.commit([command(topic, "slow")], { timeoutMs: bench.harness.patienceMs });
      await held.hit;
      const waiting = await bench.timed(() => session.commit([command(topic, "never")], { timeoutMs: 200 }));
      expect(waiting.result.status).toBe("aborted");
      expect(waiting.tookMs).toBeLessThan(1_200);
      await held.release();
      await slow;
      expect(await bench.decidedValues(topic)).not.toContain("never");
    },
  },
  {
    title: "a closed session refuses writes, and closing it again does nothing",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      await session.close();
      await session.close();
      expect(await rejection(session.commit([command(topic, "late")]))).toBe("CLOSED");
      expect(await bench.decidedValues(topic)).toEqual([]);
    },
  },
  {
    title: "closing a transport during work settles every call, and the outcomes are true (J2)",
    run: async (bench) => {
      const topic = await bench.topic();
      const transport = await bench.transport();
      const session = await bench.mint(transport, bench.role());
      const log = bench.follow(transport, session.role);
      await log.feed.sync();
      const writes = Array.from({ length: 20 }, (_, index) => session.commit([command(topic, `${index}`)]));
      const settled = Promise.allSettled(writes);
      const sync = log.feed.sync().catch(() => {});
      await writes[0];
      await Promise.all([transport.close(), transport.close()]);
      await transport.close();
      await sync;
      const values = await bench.decidedValues(topic);
      for (const [index, result] of (await settled).entries()) {
        const seen = values.filter((value) => value === `${index}`).length;
        const status = result.status === "rejected" ? "not sent" : (result.value as WriteOutcome).status;
        if (status === "committed") expect(seen).toBe(1);
        else if (status !== "unknown") expect(seen).toBe(0);
      }
    },
  },
  {
    title: "after close every call rejects with CLOSED, and no feed calls its listener",
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const log = bench.follow(transport, role);
      await log.feed.sync();
      await transport.close();
      await (await bench.transport()).appendUnfenced(bench.home(role), [bench.registration(role, "late")]);
      expect(await rejection(log.feed.sync())).toBe("CLOSED");
      expect(await rejection(transport.openSession(role, SESSION))).toBe("CLOSED");
      expect(await rejection(transport.partitionsOf(freshName("topic")))).toBe("CLOSED");
      expect(await rejection(transport.appendUnfenced(bench.home(role), [bench.registration(role, "x")]))).toBe(
        "CLOSED",
      );
      expect(log.records).toEqual([]);
    },
  },
];
