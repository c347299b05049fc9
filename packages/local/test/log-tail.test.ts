import { beforeEach, describe, expect, it } from "vitest";
import { Disk } from "./disk.js";
import {
  appendAll,
  bytes,
  DIRECTORY,
  endsOf,
  numbered,
  openLog,
  randomFrom,
  rejection,
  runs,
  textsOf,
} from "./log-script.js";

const SEGMENT = `${DIRECTORY}/segment-00000000000000000000.log`;
const RECORDS = ["the first record", "the second record", "the third, a bit longer than the others", "the last record"];

const ENDS = endsOf(RECORDS);

/** A log with `RECORDS`, each in a frame of its own. */
const written = async (aheadBytes: number): Promise<Disk> => {
  const disk = new Disk();
  const log = await openLog(disk, { aheadBytes });
  await appendAll(log, RECORDS);
  await log.close();
  return disk;
};

/** Opens, appends and opens once more. */
const expectUsable = async (disk: Disk, expected: readonly string[]): Promise<void> => {
  const log = await openLog(disk, { aheadBytes: 200 });
  expect(await textsOf(log)).toEqual(expected);
  await log.append(bytes("after the repair"));
  await log.close();
  const again = await openLog(disk);
  expect(await textsOf(again)).toEqual([...expected, "after the repair"]);
  expect(again.warnings).toEqual([]);
  await again.close();
};

describe.each([0, 300, 1024])("The end of a log with steps of %i bytes ahead", (aheadBytes) => {
  let disk: Disk;
  let whole: Uint8Array;

  beforeEach(async () => {
    disk = await written(aheadBytes);
    whole = disk.bytesOf(SEGMENT).slice();
    expect(whole.length % (aheadBytes || 1)).toBe(0);
  });

  it("H2: opens with the longest whole prefix, wherever the last two records or the space behind them are cut", async () => {
    for (let cut = ENDS[2] as number; cut <= whole.length; cut++) {
      disk.overwrite(SEGMENT, whole.subarray(0, cut));
      await expectUsable(disk, RECORDS.slice(0, ENDS.filter((end) => end <= cut).length - 1));
    }
  });

  it("H2: opens when the last record's end was overwritten with zeros or with old bytes", async () => {
    const [from, end] = ENDS.slice(3) as [number, number];
    for (let at = from; at < end - 2; at++) {
      const zeroed = whole.slice().fill(0, at);
      disk.overwrite(SEGMENT, zeroed);
      await expectUsable(disk, RECORDS.slice(0, 3));
      const recycled = whole.slice();
      recycled.set(whole.subarray(ENDS[0], (ENDS[0] as number) + end - at), at);
      disk.overwrite(SEGMENT, recycled);
      // The frames' headers have equal bytes in places, so the overwriting may have changed nothing.
      await expectUsable(disk, Buffer.compare(recycled, whole) === 0 ? RECORDS : RECORDS.slice(0, 3));
    }
  });

  it("H2: opens after tears that look like one flipped bit, whatever the checksums are", async () => {
    const records = ["first", "\u0001", "\u0000\u0000\u0001\u0000\u0000\u0000"];
    const ends = endsOf(records);
    for (let seed = 0; seed < 100; seed++) {
      const torn = new Disk();
      const log = await openLog(torn, { aheadBytes });
      for (const [index, record] of records.entries()) {
        await log.append(bytes(record));
        const image = torn.bytesOf(SEGMENT);
        for (let at = ends[index] as number; at < (ends[index + 1] as number); at++) {
          const copy = torn.copy();
          copy.overwrite(SEGMENT, image.slice().fill(0, at));
          await (await openLog(copy, { aheadBytes })).close();
        }
      }
    }
  });

  it("H2: opens when one sector of the last frame did not reach the disk, also where it had a single bit", async () => {
    const record = new Uint8Array(3000);
    record[1000] = 0x10;
    record[1600] = 0x30;
    record[2999] = 1;
    const log = await openLog(disk, { aheadBytes });
    await log.append(record);
    await log.close();
    const image = disk.bytesOf(SEGMENT).slice();
    const end = (ENDS.at(-1) as number) + 36 + record.length;
    for (let sector = Math.floor((ENDS.at(-1) as number) / 512); sector * 512 < end; sector++) {
      const from = Math.max(sector * 512, ENDS.at(-1) as number);
      const lost = image.slice().fill(0, from, Math.min((sector + 1) * 512, end));
      const isWhole = Buffer.compare(lost, image) === 0;
      disk.overwrite(SEGMENT, lost);
      const opened = await openLog(disk);
      expect(await textsOf(opened), `sector ${sector}`).toHaveLength(RECORDS.length + (isWhole ? 1 : 0));
      await opened.close();
    }
  });

  it("H5: takes zeros at the end for space that was allocated ahead, and keeps it", async () => {
    const padded = new Uint8Array(whole.length + 5000);
    padded.set(whole);
    disk.overwrite(SEGMENT, padded);
    const log = await openLog(disk, { aheadBytes });
    expect(log.warnings).toEqual([]);
    await log.close();
    expect(disk.bytesOf(SEGMENT)).toHaveLength(padded.length);
    await expectUsable(disk, RECORDS);
  });

  it("H5: refuses zeros that a valid record follows", async () => {
    for (const gapBytes of [1, 32, 512, 4096]) {
      const last = ENDS[3] as number;
      const torn = new Uint8Array(whole.length + gapBytes);
      torn.set(whole.subarray(0, last));
      torn.set(whole.subarray(last), last + gapBytes);
      disk.overwrite(SEGMENT, torn);
      const error = await rejection(openLog(disk));
      expect(error).toMatchObject({ code: "DAMAGED", place: { file: SEGMENT, offsetBytes: last } });
      const zeroedInPlace = whole.slice().fill(0, ENDS[1], ENDS[2]);
      disk.overwrite(SEGMENT, zeroedInPlace);
      expect((await rejection(openLog(disk))).place?.offsetBytes).toBe(ENDS[1]);
      expect(disk.bytesOf(SEGMENT)).toEqual(zeroedInPlace);
    }
  });

  it("H9: keeps records that share a sync or loses them together, in whatever order their pages reached the disk", async () => {
    const before = numbered("before ", 3);
    for (let seed = 0; seed < runs(200); seed++) {
      const random = randomFrom(seed);
      const crashing = new Disk();
      const log = await openLog(crashing, { aheadBytes });
      await appendAll(log, before);
      const batch = numbered("a record of one step, long enough for several pages ", 12);
      let syncing = false;
      // The sync only starts: its pages are on their way when the power goes.
      crashing.faults.sync = () => {
        syncing = true;
        return new Promise(() => undefined);
      };
      for (const text of batch) void log.append(bytes(text));
      while (!syncing) await new Promise((resolve) => setImmediate(resolve));
      crashing.unplug(() => random() < 0.8);
      const texts = await textsOf(await openLog(crashing));
      expect([before, [...before, ...batch]], `seed ${seed}`).toContainEqual(texts);
    }
  });
});
