import { describe, expect, it } from "vitest";
import { Disk } from "./disk.js";
import { appendAll, bytes, DIRECTORY, numbered, openLog, randomFrom, rejection, runs, textsOf } from "./log-script.js";

const SEGMENT = `${DIRECTORY}/segment-00000000000000000000.log`;
const RECORDS = ["the first record", "the second record", "the third, a bit longer than the others", "the last record"];

/** A log with `RECORDS`, each in a frame of its own, and where each frame ends. */
const written = async (): Promise<{ disk: Disk; ends: readonly number[] }> => {
  const disk = new Disk();
  const log = await openLog(disk);
  const ends = [disk.bytesOf(SEGMENT).length];
  for (const record of RECORDS) {
    await log.append(bytes(record));
    ends.push(disk.bytesOf(SEGMENT).length);
  }
  await log.close();
  return { disk, ends };
};

/** Opens, appends and opens once more. */
const expectUsable = async (disk: Disk, expected: readonly string[]): Promise<void> => {
  const log = await openLog(disk);
  expect(await textsOf(log)).toEqual(expected);
  await log.append(bytes("after the repair"));
  await log.close();
  const again = await openLog(disk);
  expect(await textsOf(again)).toEqual([...expected, "after the repair"]);
  expect(again.warnings).toEqual([]);
  await again.close();
};

describe("The end of a log", () => {
  it("H2: opens with the longest whole prefix, wherever the last two records are cut", async () => {
    const { disk, ends } = await written();
    const whole = disk.bytesOf(SEGMENT).slice();
    for (let cut = ends[2] as number; cut <= whole.length; cut++) {
      disk.overwrite(SEGMENT, whole.subarray(0, cut));
      await expectUsable(disk, RECORDS.slice(0, ends.filter((end) => end <= cut).length - 1));
    }
  });

  it("H2: opens when the last record's end was overwritten with zeros or with old bytes", async () => {
    const { disk, ends } = await written();
    const whole = disk.bytesOf(SEGMENT).slice();
    const from = ends[3] as number;
    for (let at = from; at < whole.length - 2; at++) {
      const zeroed = whole.slice().fill(0, at);
      disk.overwrite(SEGMENT, zeroed);
      await expectUsable(disk, RECORDS.slice(0, 3));
      const recycled = whole.slice();
      recycled.set(whole.subarray(ends[0], (ends[0] as number) + whole.length - at), at);
      disk.overwrite(SEGMENT, recycled);
      // The frames' headers have equal bytes in places, so the overwriting may have changed nothing.
      await expectUsable(disk, Buffer.compare(recycled, whole) === 0 ? RECORDS : RECORDS.slice(0, 3));
    }
  });

  it("H2: opens after tears that look like one flipped bit, whatever the checksums are", async () => {
    const records = ["first", "\u0001", "\u0000\u0000\u0001\u0000\u0000\u0000"];
    for (let seed = 0; seed < 100; seed++) {
      const disk = new Disk();
      const log = await openLog(disk);
      for (const record of records) {
        const from = disk.bytesOf(SEGMENT).length;
        await log.append(bytes(record));
        const whole = disk.bytesOf(SEGMENT);
        for (let at = from; at < whole.length; at++) {
          const copy = disk.copy();
          copy.overwrite(SEGMENT, whole.slice().fill(0, at));
          await (await openLog(copy)).close();
        }
      }
    }
  });

  it("H5: takes zeros at the end for space that was allocated ahead", async () => {
    const { disk } = await written();
    const whole = disk.bytesOf(SEGMENT).slice();
    const padded = new Uint8Array(whole.length + 5000);
    padded.set(whole);
    disk.overwrite(SEGMENT, padded);
    await expectUsable(disk, RECORDS);
  });

  it("H5: refuses zeros that a valid record follows", async () => {
    const { disk, ends } = await written();
    const whole = disk.bytesOf(SEGMENT).slice();
    for (const gapBytes of [1, 32, 512, 4096]) {
      const last = ends[3] as number;
      const torn = new Uint8Array(whole.length + gapBytes);
      torn.set(whole.subarray(0, last));
      torn.set(whole.subarray(last), last + gapBytes);
      disk.overwrite(SEGMENT, torn);
      const error = await rejection(openLog(disk));
      expect(error).toMatchObject({ code: "DAMAGED", place: { file: SEGMENT, offsetBytes: last } });
      const zeroedInPlace = whole.slice().fill(0, ends[1], ends[2]);
      disk.overwrite(SEGMENT, zeroedInPlace);
      expect((await rejection(openLog(disk))).place?.offsetBytes).toBe(ends[1]);
      expect(disk.bytesOf(SEGMENT)).toEqual(zeroedInPlace);
    }
  });

  it("H9: keeps records that share a sync or loses them together, in whatever order their pages reached the disk", async () => {
    const before = numbered("before ", 3);
    for (let seed = 0; seed < runs(200); seed++) {
      const random = randomFrom(seed);
      const disk = new Disk();
      const log = await openLog(disk);
      await appendAll(log, before);
      const batch = numbered("a record of one step, long enough for several pages ", 12);
      let syncing = false;
      // The sync only starts: its pages are on their way when the power goes.
      disk.faults.sync = () => {
        syncing = true;
        return new Promise(() => undefined);
      };
      for (const text of batch) void log.append(bytes(text));
      while (!syncing) await new Promise((resolve) => setImmediate(resolve));
      disk.unplug(() => random() < 0.8);
      const texts = await textsOf(await openLog(disk));
      expect([before, [...before, ...batch]], `seed ${seed}`).toContainEqual(texts);
    }
  });
});
