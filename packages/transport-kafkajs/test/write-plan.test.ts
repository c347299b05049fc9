import { describe, expect, it } from "vitest";
import { decompress } from "../src/decompress.js";
import { decodeBatches } from "../src/wire/record-batch.js";
import { committedAt, type PlacedRecord, planRounds, Sequences } from "../src/write-plan.js";

const PAIR = { producerId: 7n, epoch: 3 };

const record = (topic: string, partition: number, size = 1): PlacedRecord => ({
  target: { topic, partition },
  record: { key: null, value: Buffer.alloc(size), headers: [], timestampMs: 1 },
});

const baseSequence = (batch: Uint8Array): number => Buffer.from(batch).readInt32BE(53);

describe("write plan", () => {
  it("puts the records of a partition into one batch, and positions into the caller's order", () => {
    const [round, ...others] = planRounds([record("a", 1), record("b", 0), record("a", 1)], PAIR, new Sequences());
    expect(others).toEqual([]);
    expect(round?.map(({ topic, indices }) => [topic, indices])).toEqual([
      ["a", [0, 2]],
      ["b", [1]],
    ]);
    const written = (baseOffset: bigint) => ({ status: "written", baseOffset, appendedAtMs: undefined }) as const;
    const outcome = committedAt(round ?? [], [written(10n), written(20n)]);
    expect(outcome.status === "committed" && outcome.positions.map(({ offset }) => offset)).toEqual([10n, 20n, 11n]);
  });

  it("splits what exceeds one batch into rounds whose sequence numbers follow each other", async () => {
    const sequences = new Sequences();
    sequences.advance({ topic: "a", partition: 0 }, 5);
    const records = Array.from({ length: 5 }, () => record("a", 0, 300_000));
    const rounds = planRounds(records, PAIR, sequences);
    expect(rounds.map((round) => round.map(({ batch }) => baseSequence(batch)))).toEqual([[5], [7], [9]]);
    const counts = await Promise.all(
      rounds.flat().map(async ({ batch }) => (await decodeBatches(Buffer.from(batch), decompress))[0]?.lastOffset),
    );
    expect(counts).toEqual([1n, 1n, 0n]);
  });

  it("wraps sequence numbers from 2^31-1 to 0", () => {
    const sequences = new Sequences();
    const target = { topic: "a", partition: 0 };
    sequences.advance(target, 2 ** 31 - 1);
    expect(sequences.next(target)).toBe(2 ** 31 - 1);
    sequences.advance(target, 1);
    expect(sequences.next(target)).toBe(0);
  });
});
