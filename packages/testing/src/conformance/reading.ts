import { encodeUtf8 } from "@krabka/core";
import { expect } from "vitest";
import { type Bench, type FeedLog, positionsOf, rejection } from "./bench.js";
import type { ConformanceTest } from "./conformance-test.js";

const SYNC_LIMIT_MS = 1_000;

/** `sync` must end within a second, whatever the partition ends in. */
const syncsInTime = async (bench: Bench, log: FeedLog): Promise<bigint> => {
  const { result, tookMs } = await bench.timed(() => log.feed.sync({ timeoutMs: bench.harness.patienceMs }));
  expect(tookMs).toBeLessThan(SYNC_LIMIT_MS);
  return result;
};

const membersOf = (log: FeedLog): readonly string[] =>
  log.records.map((record) => ("member" in record ? record.member : ""));

/** Ends a transaction on the role's partition in each given way, one after the other. */
const endings = async (bench: Bench, results: readonly ("commit" | "abort")[]) => {
  const transport = await bench.transport();
  const role = bench.role();
  for (const [index, result] of results.entries()) {
    const record = { ...bench.home(role), ...bench.registration(role, `${result}-${index}`) };
    await (await bench.harness.startTransaction(role, [record])).end(result);
  }
  return { transport, role };
};

/** What a feed tells, when it says that it has caught up, and what it never shows. */
export const readingTests: readonly ConformanceTest[] = [
  {
    title: "sync ends on an empty partition",
    run: async (bench) => {
      const log = bench.follow(await bench.transport(), bench.role());
      expect(await syncsInTime(bench, log)).toBe(0n);
      expect(log.records).toEqual([]);
    },
  },
  {
    title: "sync ends on a partition that ends in a commit marker (D1)",
    needs: ["startTransaction"],
    run: async (bench) => {
      const { transport, role } = await endings(bench, ["commit"]);
      const log = bench.follow(transport, role);
      await bench.eventually("the committed record", async () => {
        await syncsInTime(bench, log);
        return log.records.length > 0 ? true : undefined;
      });
      expect(membersOf(log)).toEqual(["commit-0"]);
    },
  },
  {
    title: "sync ends on a partition that ends in an abort marker (D1)",
    needs: ["startTransaction"],
    run: async (bench) => {
      const { transport, role } = await endings(bench, ["abort"]);
      const log = bench.follow(transport, role);
      await syncsInTime(bench, log);
      expect(log.records).toEqual([]);
    },
  },
  {
    title: "sync ends after 50 aborted transactions in a row, and none of them is shown (D1, D3)",
    needs: ["startTransaction"],
    run: async (bench) => {
      const { transport, role } = await endings(bench, [...Array.from({ length: 50 }, () => "abort" as const)]);
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "real")]);
      const log = bench.follow(transport, role);
      await syncsInTime(bench, log);
      expect(membersOf(log)).toEqual(["real"]);
    },
  },
  {
    title: "sync ends where all records were deleted: begin = end > 0 (D2)",
    needs: ["deleteRecords"],
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "gone")]);
      const begin = await bench.harness.deleteRecords(bench.home(role));
      expect(begin).toBeGreaterThan(0n);
      const log = bench.follow(transport, role);
      expect(await syncsInTime(bench, log)).toBe(begin);
      expect(log.records).toEqual([]);
      const session = await bench.mint(transport, role);
      const [grant] = positionsOf(await bench.writeLease(session));
      expect(grant?.offset).toBeGreaterThanOrEqual(begin);
    },
  },
  {
    title: "everything that was committed before sync was called is there when it resolves",
    run: async (bench) => {
      const [writer, reader] = [await bench.transport(), await bench.transport()];
      const role = bench.role();
      const log = bench.follow(reader, role);
      for (let round = 0; round < 10; round++) {
        const [position] = await writer.appendUnfenced(bench.home(role), [bench.registration(role, `m-${round}`)]);
        expect(await log.feed.sync()).toBeGreaterThan(position?.offset ?? 0n);
        expect(membersOf(log).at(-1)).toBe(`m-${round}`);
      }
      expect(log.records.map(({ offset }) => offset)).toEqual([...Array(10).keys()].map(BigInt));
    },
  },
  {
    title: "an open transaction of another role in the same partition does not hold sync up (C6)",
    needs: ["startTransaction", "uncommittedReads"],
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const other = bench.role();
      const record = { ...bench.home(other), ...bench.registration(other, "undecided") };
      const open = await bench.harness.startTransaction(other, [record]);
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "behind it")]);
      const log = bench.follow(transport, role);
      await syncsInTime(bench, log);
      expect(membersOf(log)).toEqual(["behind it"]);
      await open.end("abort");
    },
  },
  {
    title: "records of an open transaction are a sign of life and nothing more",
    needs: ["startTransaction", "uncommittedReads"],
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const log = bench.follow(transport, role);
      for (const result of ["abort", "commit"] as const) {
        const record = { ...bench.home(role), ...bench.registration(role, result) };
        const open = await bench.harness.startTransaction(role, [record]);
        await bench.eventually("the sign of life", () =>
          log.uncommitted.some((one) => "member" in one && one.member === result) ? true : undefined,
        );
        expect(membersOf(log)).not.toContain(result);
        await open.end(result);
      }
      await bench.eventually("the committed record", () => (membersOf(log).includes("commit") ? true : undefined));
      expect(membersOf(log)).toEqual(["commit"]);
    },
  },
  {
    title: "a record that was never committed is shown to nobody (D3)",
    needs: ["startTransaction"],
    run: async (bench) => {
      const { transport, role } = await endings(bench, ["abort", "commit", "abort"]);
      await bench.harness.startTransaction(role, [{ ...bench.home(role), ...bench.registration(role, "left open") }]);
      const log = bench.follow(transport, role);
      await bench.eventually("the committed record", () => (log.records.length > 0 ? true : undefined));
      const session = await bench.mint(transport, role);
      positionsOf(await bench.writeLease(session));
      await bench.eventually("the lease", () => (log.records.length > 1 ? true : undefined));
      expect(membersOf(log)).toEqual(["commit-1", "node-1"]);
      expect((await bench.harness.readCommitted(bench.home(role))).length).toBe(2);
    },
  },
  {
    title: "a record that does not decode is reported once and hides nothing",
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const home = bench.home(role);
      await bench.harness.appendRaw(home, [
        bench.registration(role, "before"),
        { key: encodeUtf8("no key of ours"), value: encodeUtf8("x"), headers: [] },
        { ...bench.registration(role, "broken"), value: new Uint8Array(0) },
        bench.registration(role, "after"),
      ]);
      const log = bench.follow(transport, role);
      await log.feed.sync();
      await bench.harness.appendRaw(home, [bench.registration(role, "later")]);
      await log.feed.sync();
      expect(membersOf(log)).toEqual(["before", "after", "later"]);
      expect(log.malformed).toEqual([1n, 2n]);
    },
  },
  {
    title: "two feeds of one role see the same, and closing one leaves the other",
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const [one, other] = [bench.follow(transport, role), bench.follow(transport, role)];
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "a")]);
      await Promise.all([one.feed.sync(), other.feed.sync()]);
      expect(membersOf(one)).toEqual(["a"]);
      expect(membersOf(other)).toEqual(["a"]);
      one.feed.close();
      one.feed.close();
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "b")]);
      await other.feed.sync();
      expect(membersOf(other)).toEqual(["a", "b"]);
      expect(membersOf(one)).toEqual(["a"]);
      expect(await rejection(one.feed.sync())).toBe("CLOSED");
    },
  },
  {
    title: "20 roles in one partition each see their own records only",
    run: async (bench) => {
      const transport = await bench.transport();
      const roles = Array.from({ length: 20 }, () => bench.role());
      const early = roles.slice(0, 10).map((role) => bench.follow(transport, role));
      for (const role of roles) {
        await transport.appendUnfenced(bench.home(role), [bench.registration(role, `of ${role}`)]);
      }
      const logs = [...early, ...roles.slice(10).map((role) => bench.follow(transport, role))];
      await Promise.all(logs.map(({ feed }) => feed.sync()));
      expect(logs.map(membersOf)).toEqual(roles.map((role) => [`of ${role}`]));
    },
  },
  {
    title: "a feed has a record within 100 ms of its append",
    run: async (bench) => {
      const [writer, reader] = [await bench.transport(), await bench.transport()];
      const role = bench.role();
      const log = bench.follow(reader, role);
      await log.feed.sync();
      const tookMs: number[] = [];
      for (let round = 0; round < 9; round++) {
        await writer.appendUnfenced(bench.home(role), [bench.registration(role, `m-${round}`)]);
        const shown = await bench.timed(() =>
          bench.eventually("the record", () => (log.records.length > round ? true : undefined)),
        );
        tookMs.push(shown.tookMs);
      }
      const median = tookMs.sort((a, b) => a - b)[4];
      expect(median).toBeLessThan(100);
    },
  },
  {
    title: "a feed goes on after its connection was cut",
    needs: ["cutConnections"],
    run: async (bench) => {
      const [writer, reader] = [await bench.transport(), await bench.faultyTransport()];
      const role = bench.role();
      const log = bench.follow(reader, role);
      await log.feed.sync();
      await bench.harness.cutConnections();
      await writer.appendUnfenced(bench.home(role), [bench.registration(role, "after the cut")]);
      await bench.eventually("the record", () => (log.records.length > 0 ? true : undefined));
      await log.feed.sync();
      expect(membersOf(log)).toEqual(["after the cut"]);
    },
  },
  {
    title: "a feed goes on after the partition got another leader",
    needs: ["moveLeader"],
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const log = bench.follow(transport, role);
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "before")]);
      await log.feed.sync();
      await bench.harness.moveLeader(bench.home(role));
      await transport.appendUnfenced(bench.home(role), [bench.registration(role, "after")]);
      await log.feed.sync();
      expect(membersOf(log)).toEqual(["before", "after"]);
    },
  },
  {
    title: "a feed of a topic that does not exist ends with UNKNOWN_TOPIC",
    run: async (bench) => {
      const transport = bench.unpreparedTransport({ name: "no-such-topic-here", partitions: 1 });
      const log = bench.follow(transport, bench.role());
      expect(await rejection(log.feed.sync({ timeoutMs: bench.harness.patienceMs }))).toBe("UNKNOWN_TOPIC");
    },
  },
];
