import { encodeUtf8, partitionForKey, type RawRecord } from "@krabka/core";
import { expect } from "vitest";
import { command, positionsOf, rejection } from "./bench.js";
import type { ConformanceTest } from "./conformance-test.js";

/** What a write does when nothing goes wrong, and when it is asked for nonsense. */
export const writingTests: readonly ConformanceTest[] = [
  {
    title: "a commit puts all its records there, and says where each of them is",
    run: async (bench) => {
      const [one, other] = [await bench.topic(3), await bench.topic(2)];
      const session = await bench.session();
      const input = [
        command(one, "a", 2),
        command(other, "b", 1),
        command(one, "c", 0),
        command(one, "d", 2),
        command(other, "e", 1),
      ];
      const positions = positionsOf(await session.commit(input));
      expect(positions.map(({ topic, partition }) => ({ topic, partition }))).toEqual(
        input.map(({ topic, partition }) => ({ topic, partition })),
      );
      expect(positions.map(({ offset }) => offset)).toEqual([0n, 0n, 0n, 1n, 1n]);
      expect(await bench.decidedValues(one, 2)).toEqual(["a", "d"]);
      expect(await bench.decidedValues(one, 0)).toEqual(["c"]);
      expect(await bench.decidedValues(other, 1)).toEqual(["b", "e"]);
    },
  },
  {
    title: "keys, headers, empty values and tombstones arrive as they were written",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      const bytes = Uint8Array.from([0, 255, 128, 10]);
      const records = [
        { topic, key: bytes, value: bytes, headers: [{ key: "h", value: encodeUtf8("ä") }] },
        { topic, key: bytes, value: null, headers: [] },
        { topic, key: null, value: new Uint8Array(0), headers: [] },
      ];
      positionsOf(await session.commit(records));
      const found = await bench.eventually("the records", async () => {
        const now = await bench.harness.readCommitted({ topic, partition: 0 });
        return now.length === 3 ? now : undefined;
      });
      const plain = (value: Uint8Array | null) => (value === null ? null : [...value]);
      const shown = (written: readonly RawRecord[]) =>
        written.map(({ key, value, headers }) => [
          plain(key),
          plain(value),
          headers.map((h) => [h.key, plain(h.value)]),
        ]);
      expect(shown(found)).toEqual(shown(records));
    },
  },
  {
    title: "header values are any bytes",
    needs: ["binaryHeaders"],
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      const bytes = Uint8Array.from([0, 255, 128, 10]);
      positionsOf(await session.commit([{ topic, key: null, value: bytes, headers: [{ key: "h", value: bytes }] }]));
      const [found] = await bench.eventually("the record", async () => {
        const now = await bench.harness.readCommitted({ topic, partition: 0 });
        return now.length === 1 ? now : undefined;
      });
      expect(found?.headers.map(({ key, value }) => [key, [...value]])).toEqual([["h", [...bytes]]]);
    },
  },
  {
    title: "a record without partition goes where Kafka's default partitioner puts its key",
    run: async (bench) => {
      const topic = await bench.topic(4);
      const session = await bench.session();
      const keys = ["a", "device-7", "ä", "a-longer-key-of-some-bytes"];
      const records = keys.map((key) => ({ topic, key: encodeUtf8(key), value: encodeUtf8(key), headers: [] }));
      const positions = positionsOf(await session.commit(records));
      expect(positions.map(({ partition }) => partition)).toEqual(
        keys.map((key) => partitionForKey(encodeUtf8(key), 4)),
      );
    },
  },
  {
    title: "an empty commit is committed, and the session goes on",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      expect(positionsOf(await session.commit([]))).toEqual([]);
      positionsOf(await session.commit([command(topic, "next")]));
      expect(positionsOf(await session.commit([]))).toEqual([]);
      positionsOf(await session.commit([command(topic, "last")]));
      expect(await bench.decidedValues(topic)).toEqual(["next", "last"]);
    },
  },
  {
    title: "a commit to an unknown topic writes nothing, and the session goes on",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      const records = [command(topic, "beside it"), command("no-such-topic-here", "lost")];
      expect(await rejection(session.commit(records, { timeoutMs: bench.harness.patienceMs }))).toBe("UNKNOWN_TOPIC");
      positionsOf(await session.commit([command(topic, "next")]));
      expect(await bench.decidedValues(topic)).toEqual(["next"]);
    },
  },
  {
    title: "a batch larger than one request is committed whole, in order",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      const filler = "x".repeat(10_000);
      const records = Array.from({ length: 130 }, (_, index) => command(topic, `${index}:${filler}`));
      const positions = positionsOf(await session.commit(records, { timeoutMs: bench.harness.patienceMs * 3 }));
      expect(positions.map(({ offset }) => offset)).toEqual(records.map((_, index) => BigInt(index)));
      const values = await bench.decidedValues(topic);
      expect(values.map((value) => value.split(":")[0])).toEqual(records.map((_, index) => `${index}`));
    },
  },
  {
    title: "a record larger than the broker takes leaves nothing behind, and the session goes on",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      const records = [command(topic, "beside it"), command(topic, "x".repeat(5_000_000))];
      const result = await session.commit(records).then(
        ({ status }) => status,
        (error: { code?: string }) => error.code,
      );
      expect(["aborted", "INVALID_ARGUMENT"]).toContain(result);
      positionsOf(await session.commit([command(topic, "next")]));
      expect(await bench.decidedValues(topic)).toEqual(["next"]);
    },
  },
  {
    title: "writes that nobody awaits run in the order of the calls, each with its own outcome",
    run: async (bench) => {
      const topic = await bench.topic();
      const session = await bench.session();
      const writes = Array.from({ length: 30 }, (_, index) =>
        index % 3 === 2 ? bench.writeLease(session) : session.commit([command(topic, `${index}`)]),
      );
      const outcomes = await Promise.all(writes);
      const offsets = outcomes.flatMap((outcome, index) =>
        index % 3 === 2 ? [] : positionsOf(outcome).map(({ offset }) => offset),
      );
      expect(offsets).toEqual([...offsets].sort((a, b) => Number(a - b)));
      const expected = writes.flatMap((_, index) => (index % 3 === 2 ? [] : [`${index}`]));
      expect(await bench.decidedValues(topic)).toEqual(expected);
    },
  },
  {
    title: "commits and fenced appends may take turns in one partition",
    needs: ["fencedAppend"],
    run: async (bench) => {
      const role = bench.role();
      const session = await bench.session(role);
      const home = bench.home(role);
      const epochs: bigint[] = [];
      for (let turn = 0; turn < 5; turn++) {
        const committed = positionsOf(await session.commit([{ ...bench.lease(session), ...home }]));
        const appended = positionsOf(await session.append(home, [bench.lease(session), bench.lease(session)]));
        epochs.push(...committed.map(({ offset }) => offset), ...appended.map(({ offset }) => offset));
      }
      const found = await bench.eventually("all lease records", async () => {
        const records = await bench.harness.readCommitted(home);
        return records.length === 15 ? records : undefined;
      });
      expect(found.map(({ offset }) => offset)).toEqual(epochs);
    },
  },
  {
    title: "an ordinary append says where its records are and needs no mint",
    run: async (bench) => {
      const transport = await bench.transport();
      const role = bench.role();
      const home = bench.home(role);
      const records = [bench.registration(role, "a"), bench.registration(role, "b")];
      const positions = await transport.appendUnfenced(home, records);
      expect(positions.map(({ offset }) => offset)).toEqual([0n, 1n]);
      expect((await bench.harness.readCommitted(home)).map(({ offset }) => offset)).toEqual([0n, 1n]);
      expect(await bench.harness.describeRole(role)).toBeUndefined();
    },
  },
];
