import { describe, expect, it } from "vitest";
import type { EmbeddedBroker } from "../../src/embedded/broker/embedded-broker.js";
import { Disk } from "../disk.js";
import { randomFrom } from "../log-script.js";
import { ask, basesOf, mint, openBroker, record, visible } from "./broker-script.js";

const OPTIONS = { checkpointAfterBytes: 300, retentionRecords: 1000 } as const;
const LOG_OPTIONS = { segmentBytes: 400 } as const;
const TOPIC = "log";
const targets = [0, 1].map((partition) => ({ topic: TOPIC, partition }));

/** What somebody outside was told. */
interface Told {
  readonly pairs: { readonly producerId: bigint; readonly epoch: number }[];
  /** Values of committed transactions; each is in both partitions. */
  readonly committed: string[];
  readonly offsets: bigint[];
}

const nothing = (): Told => ({ pairs: [], committed: [], offsets: [] });

/** Takes turns at leading and writing over two partitions, and stops at the first failure. */
const script = async (disk: Disk, told: Told, life: number): Promise<void> => {
  const { broker, log } = await openBroker(disk, OPTIONS, LOG_OPTIONS);
  await ask(broker, { kind: "create-topic", topic: TOPIC, partitions: 2, compacted: false });
  for (let turn = 0; turn < 6; turn++) {
    const pair = await mint(broker, "role");
    told.pairs.push(pair);
    for (let write = 0; write < 2; write++) {
      const value = `${life}.${turn}.${write}`;
      const batches = targets.map((target) => ({ ...target, records: [record("k", value)] }));
      const [base = -1n] = await basesOf(ask(broker, { kind: "commit", role: "role", pair, batches }));
      told.offsets.push(base);
      told.committed.push(value);
    }
  }
  await broker.close();
  await log.close();
};

const valuesIn = (broker: EmbeddedBroker, partition: number): string[] =>
  visible(broker, { topic: TOPIC, partition }).map((line) => line.split("=")[1] ?? "");

const isStrictlyGrowing = (told: Told): boolean =>
  told.pairs.every((pair, index) => {
    const before = told.pairs[index - 1];
    return (
      before === undefined ||
      pair.producerId > before.producerId ||
      (pair.producerId === before.producerId && pair.epoch > before.epoch)
    );
  }) && told.offsets.every((offset, index) => index === 0 || offset > (told.offsets[index - 1] as bigint));

describe("A crash of the owner's machine", () => {
  it("before any system call takes back nothing that anybody was told, and no pair or offset is given out twice", async () => {
    const measured = new Disk();
    await script(measured, nothing(), 0);
    const total = measured.calls.length;
    expect(total).toBeGreaterThan(60);
    expect(measured.calls.some((call) => call.startsWith("rename checkpoint"))).toBe(true);
    for (let k = 0; k < total; k++) {
      for (const kept of [0, 0.5, 1]) {
        const hint = `crash before call ${k} with ${kept} of the unsynced pages`;
        const disk = new Disk();
        const random = randomFrom(k);
        disk.faults.before = () => {
          if (disk.calls.length >= k) throw new Error("the machine is off");
        };
        const told = nothing();
        await script(disk, told, 1).catch(() => undefined);
        disk.unplug(
          () => random() < kept,
          () => random() < kept,
        );
        const { broker, log } = await openBroker(disk, OPTIONS, LOG_OPTIONS);
        const [one, other] = [valuesIn(broker, 0), valuesIn(broker, 1)];
        expect(one, hint).toEqual(other);
        expect(one.slice(0, told.committed.length), hint).toEqual(told.committed);
        expect(one.length, hint).toBeLessThanOrEqual(told.committed.length + 1);
        await broker.close();
        await log.close();
        await script(disk, told, 2);
        expect(isStrictlyGrowing(told), hint).toBe(true);
      }
    }
  }, 60_000);
});
