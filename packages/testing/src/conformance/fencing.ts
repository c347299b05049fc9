import { expect } from "vitest";
import { command, positionsOf, rejection } from "./bench.js";
import type { ConformanceTest } from "./conformance-test.js";

/** Who may write: the newest mint, and nobody before it. */
export const fencingTests: readonly ConformanceTest[] = [
  {
    title: "a session's pair is the one that the coordinator tells everybody",
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const first = await bench.mint(transport, role);
      expect(await bench.harness.describeRole(role)).toEqual(first.pair);
      const second = await bench.mint(transport, role);
      expect(await bench.harness.describeRole(role)).toEqual(second.pair);
      expect(second.pair).not.toEqual(first.pair);
    },
  },
  {
    title: "describe gives the coordinator's pair to somebody who never minted",
    needs: ["describe"],
    run: async (bench) => {
      const role = bench.role();
      const session = await bench.session(role);
      const description = await (await bench.transport()).describe(role);
      expect(description.pair).toEqual(session.pair);
    },
  },
  {
    title: "the later session shuts the earlier one out, whichever of two transports is first",
    run: async (bench) => {
      const transports = [await bench.transport(), await bench.transport()] as const;
      for (const [one, other] of [transports, [transports[1], transports[0]] as const]) {
        const topic = await bench.topic();
        const role = bench.role();
        const earlier = await bench.mint(one, role);
        positionsOf(await earlier.commit([command(topic, "earlier")]));
        const later = await bench.mint(other, role);
        expect((await earlier.commit([command(topic, "zombie")])).status).toBe("fenced");
        positionsOf(await later.commit([command(topic, "later")]));
        expect((await earlier.commit([command(topic, "zombie again")])).status).toBe("fenced");
        expect(await bench.decidedValues(topic)).toEqual(["earlier", "later"]);
      }
    },
  },
  {
    title: "a session that never wrote is shut out as well",
    run: async (bench) => {
      const transport = await bench.transport();
      const topic = await bench.topic();
      const role = bench.role();
      const earlier = await bench.mint(transport, role);
      await bench.mint(transport, role);
      expect((await earlier.commit([command(topic, "zombie")])).status).toBe("fenced");
      expect(await bench.decidedValues(topic)).toEqual([]);
    },
  },
  {
    title: "100 guarded writes and 10 renewals leave the pair unchanged",
    run: async (bench) => {
      const transport = await bench.transport();
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.mint(transport, role);
      const { pair } = session;
      for (let write = 0; write < 100; write++) {
        positionsOf(await session.commit([command(topic, `${write}`)]));
        if (write % 10 === 0) positionsOf(await bench.writeLease(session));
      }
      expect(session.pair).toEqual(pair);
      expect(session.mustRemint).toBe(false);
      expect(await bench.harness.describeRole(role)).toEqual(pair);
      expect((await bench.decidedValues(topic)).length).toBe(100);
    },
  },
  {
    title: "a takeover aborts the transaction that the earlier session has open",
    needs: ["holdRequests"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const earlier = await bench.mint(await bench.faultyTransport(), role);
      const held = await bench.harness.injectFault({ api: "EndTxn", effect: "hold-request" });
      const commit = earlier.commit([command(topic, "earlier")], { timeoutMs: bench.harness.patienceMs });
      await held.hit;
      const later = await bench.session(role);
      await held.release();
      expect((await commit).status).toBe("fenced");
      positionsOf(await later.commit([command(topic, "later")]));
      expect(await bench.decidedValues(topic)).toEqual(["later"]);
    },
  },
  {
    title: "a transaction that another program left open under the role ends with the mint",
    needs: ["startTransaction"],
    run: async (bench) => {
      const transport = await bench.transport();
      const topic = await bench.topic();
      const role = bench.role();
      const open = await bench.harness.startTransaction(role, [command(topic, "left open")]);
      const session = await bench.mint(transport, role);
      positionsOf(await session.commit([command(topic, "later")]));
      await expect(open.end("commit")).rejects.toThrow();
      expect(await bench.decidedValues(topic)).toEqual(["later"]);
    },
  },
  {
    title: "terms follow the order of the mints over ten takeovers",
    run: async (bench) => {
      const transports = [await bench.transport(), await bench.transport()] as const;
      const role = bench.role();
      const terms: bigint[] = [];
      for (let takeover = 0; takeover < 10; takeover++) {
        const session = await bench.mint(transports[takeover % 2 === 0 ? 0 : 1], role);
        const [grant] = positionsOf(await bench.writeLease(session));
        terms.push(grant?.offset ?? -1n);
      }
      expect(terms).toEqual([...terms].sort((a, b) => Number(a - b)));
      expect(new Set(terms).size).toBe(10);
      const log = bench.follow(transports[0], role);
      await bench.eventually("all grants", async () => {
        await log.feed.sync();
        return log.records.length === 10 ? true : undefined;
      });
      expect(log.records.map(({ offset }) => offset)).toEqual(terms);
    },
  },
  {
    title: "a fenced append is never accepted once the later session's first record is in the partition",
    needs: ["fencedAppend"],
    run: async (bench) => {
      const role = bench.role();
      const earlier = await bench.session(role);
      positionsOf(await bench.writeLease(earlier));
      const later = await bench.session(role);
      positionsOf(await bench.writeLease(later));
      expect((await bench.writeLease(earlier)).status).toBe("fenced");
      expect((await bench.writeLease(earlier)).status).toBe("fenced");
      positionsOf(await bench.writeLease(later));
      const log = bench.follow(await bench.transport(), role);
      await log.feed.sync();
      const epochs = log.records.map((record) => (record.kind === "lease" ? record.pair : undefined));
      expect(epochs).toEqual([earlier.pair, later.pair, later.pair]);
    },
  },
  {
    title: "a fenced append is accepted until the later session's first record is in the partition, and never after",
    needs: ["fencedAppend", "lateFence"],
    run: async (bench) => {
      const role = bench.role();
      const earlier = await bench.session(role);
      positionsOf(await bench.writeLease(earlier));
      const later = await bench.session(role);
      positionsOf(await bench.writeLease(earlier));
      positionsOf(await bench.writeLease(later));
      expect((await bench.writeLease(earlier)).status).toBe("fenced");
      expect((await bench.writeLease(earlier)).status).toBe("fenced");
      positionsOf(await bench.writeLease(later));
      const log = bench.follow(await bench.transport(), role);
      await log.feed.sync();
      const epochs = log.records.map((record) => (record.kind === "lease" ? record.pair : undefined));
      expect(epochs).toEqual([earlier.pair, earlier.pair, later.pair, later.pair]);
    },
  },
  {
    title: "a fenced append stays refused after the partition got another leader",
    needs: ["fencedAppend", "moveLeader"],
    run: async (bench) => {
      const role = bench.role();
      const earlier = await bench.session(role);
      positionsOf(await bench.writeLease(earlier));
      const later = await bench.session(role);
      positionsOf(await bench.writeLease(later));
      await bench.harness.moveLeader(bench.home(role));
      expect((await bench.writeLease(earlier)).status).toBe("fenced");
      positionsOf(await bench.writeLease(later));
    },
  },
  {
    title: "a session goes on after its coordinator moved",
    needs: ["moveCoordinator"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.session(role);
      positionsOf(await session.commit([command(topic, "before")]));
      await bench.harness.moveCoordinator(role);
      positionsOf(await session.commit([command(topic, "after")]));
      expect(await bench.harness.describeRole(role)).toEqual(session.pair);
      expect(await bench.decidedValues(topic)).toEqual(["before", "after"]);
    },
  },
  {
    title: "retire shuts a producer id out of a partition for good",
    needs: ["fencedAppend"],
    run: async (bench) => {
      const transport = await bench.transport();
      const left = await bench.mint(transport, bench.role());
      const session = await bench.mint(transport, bench.role());
      const home = bench.home(session.role);
      positionsOf(await bench.writeLease(left));
      positionsOf(await session.retire(left.pair.producerId, home, bench.lease(session)));
      expect((await bench.writeLease(left)).status).toBe("fenced");
      positionsOf(await bench.writeLease(session));
    },
  },
  {
    title: "a session is shut out when the coordinator forgot its role and minted a new id",
    needs: ["forgetRole"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const earlier = await bench.session(role);
      positionsOf(await earlier.commit([command(topic, "earlier")]));
      await bench.harness.forgetRole(role);
      const later = await bench.session(role);
      expect(later.pair.producerId).not.toBe(earlier.pair.producerId);
      expect((await earlier.commit([command(topic, "zombie")])).status).toBe("fenced");
      positionsOf(await later.commit([command(topic, "later")]));
      expect(await bench.decidedValues(topic)).toEqual(["earlier", "later"]);
    },
  },
  {
    title: "a session whose role was forgotten is fenced and does not mint by itself",
    needs: ["forgetRole"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.session(role);
      await bench.harness.forgetRole(role);
      expect((await session.commit([command(topic, "late")])).status).toBe("fenced");
      expect(await bench.harness.describeRole(role)).toBeUndefined();
      expect(await bench.decidedValues(topic)).toEqual([]);
    },
  },
  {
    title: "remint gives the next epoch of the session's own pair",
    needs: ["conditionalRemint"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const session = await bench.session(role);
      const { pair } = session;
      positionsOf(await session.commit([command(topic, "before")]));
      expect(await session.remint()).toBeUndefined();
      expect(session.pair).toEqual({ producerId: pair.producerId, epoch: pair.epoch + 1 });
      expect(await bench.harness.describeRole(role)).toEqual(session.pair);
      positionsOf(await session.commit([command(topic, "after")]));
      expect(await bench.decidedValues(topic)).toEqual(["before", "after"]);
    },
  },
  {
    title: "remint is refused after a rival took over, and leaves the rival alone",
    needs: ["conditionalRemint"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const deposed = await bench.session(role);
      const rival = await bench.session(role);
      expect(await rejection(deposed.remint())).toBe("FENCED");
      expect(await bench.harness.describeRole(role)).toEqual(rival.pair);
      positionsOf(await rival.commit([command(topic, "rival")]));
      expect((await deposed.commit([command(topic, "zombie")])).status).toBe("fenced");
    },
  },
  {
    title: "remint does not abort the transaction that a rival has open",
    needs: ["conditionalRemint", "startTransaction"],
    run: async (bench) => {
      const topic = await bench.topic();
      const role = bench.role();
      const deposed = await bench.session(role);
      const rival = await bench.harness.startTransaction(role, [command(topic, "rival")]);
      expect(await rejection(deposed.remint())).toBe("FENCED");
      await rival.end("commit");
      expect(await bench.decidedValues(topic)).toEqual(["rival"]);
    },
  },
];
