import { beforeEach, describe, expect, it } from "vitest";
import { Disk } from "./disk.js";
import { appendAll, bytes, DIRECTORY, endsOf, numbered, openLog, rejection, textsOf } from "./log-script.js";

const segment = (base: number): string => `${DIRECTORY}/segment-${String(base).padStart(20, "0")}.log`;
const checkpoint = (position: number): string => `${DIRECTORY}/checkpoint-${String(position).padStart(20, "0")}.state`;

/** Opening must refuse, name a file, and change nothing. */
const expectRefusal = async (disk: Disk, file?: string): Promise<void> => {
  const before = disk.paths().map((path) => Buffer.from(disk.bytesOf(path)).toString("hex"));
  const error = await rejection(openLog(disk));
  expect(error.code).toBe("DAMAGED");
  if (file !== undefined) expect(error.place?.file).toBe(file);
  expect(error.message).toMatch(/ is damaged at byte \d+: /);
  expect(disk.paths().map((path) => Buffer.from(disk.bytesOf(path)).toString("hex"))).toEqual(before);
};

describe("Damage", () => {
  let disk: Disk;

  describe.each([0, 256])("in a log of one segment, with steps of %i bytes ahead", (aheadBytes) => {
    const texts = ["one", "two two", "three three three"];
    const ends = endsOf(texts);
    const endBytes = ends.at(-1) as number;
    let whole: Uint8Array;

    beforeEach(async () => {
      disk = new Disk();
      const log = await openLog(disk, { aheadBytes });
      await appendAll(log, texts);
      await log.close();
      whole = disk.bytesOf(segment(0)).slice();
      expect(whole.length).toBe(aheadBytes || endBytes);
    });

    const flipped = (bit: number): Uint8Array => {
      const copy = whole.slice();
      copy[bit >> 3] = (copy[bit >> 3] as number) ^ (1 << (bit & 7));
      return copy;
    };

    it("H3: refuses any single flipped bit, also in the last record, and names the place", async () => {
      for (let bit = 0; bit < endBytes * 8; bit++) {
        disk.overwrite(segment(0), flipped(bit));
        const error = await rejection(openLog(disk, { aheadBytes }));
        expect(error.code, `bit ${bit}`).toBe("DAMAGED");
        expect(error.place?.offsetBytes, `bit ${bit}`).toBeLessThanOrEqual(bit >> 3);
        expect(disk.bytesOf(segment(0))).toEqual(flipped(bit));
      }
    });

    it("H5: a flipped bit in the space ahead touches no record: it is cut off and told", async () => {
      for (let bit = endBytes * 8; bit < whole.length * 8; bit++) {
        disk.overwrite(segment(0), flipped(bit));
        const log = await openLog(disk, { aheadBytes });
        expect(await textsOf(log)).toEqual(texts);
        expect(log.warnings, `bit ${bit}`).toHaveLength(1);
        await log.append(bytes("more"));
        await log.close();
        const again = await openLog(disk, { aheadBytes });
        expect(await textsOf(again)).toEqual([...texts, "more"]);
        expect(again.warnings).toEqual([]);
        await again.close();
      }
    });

    it("H3: refuses a log from which a record was taken out, or in which two changed places", async () => {
      const frame = (index: number): Uint8Array => whole.subarray(ends[index], ends[index + 1]);
      for (const order of [
        [1, 2],
        [0, 2],
        [1, 0, 2],
        [0, 2, 1],
        [0, 1, 1],
        [0, 0, 1, 2],
      ]) {
        const frames = order.map(frame);
        disk.overwrite(segment(0), Buffer.concat([whole.subarray(0, ends[0]), ...frames, whole.subarray(endBytes)]));
        await expectRefusal(disk, segment(0));
      }
    });
  });

  describe("in a log of several segments", () => {
    const texts = numbered("record ", 30);

    beforeEach(async () => {
      disk = new Disk();
      const log = await openLog(disk, { segmentBytes: 200 });
      await appendAll(log, texts);
      await log.close();
    });

    it("H3: refuses a missing segment, the last one included", async () => {
      for (const path of disk.paths()) {
        const copy = disk.copy();
        copy.delete(path);
        await expectRefusal(copy);
      }
    });

    it("H3: refuses segments that changed places, and one of another log", async () => {
      const [first, second] = disk.paths().slice(1) as [string, string];
      const swapped = disk.copy();
      swapped.overwrite(first, disk.bytesOf(second));
      swapped.overwrite(second, disk.bytesOf(first));
      await expectRefusal(swapped);

      const other = new Disk();
      const log = await openLog(other, { segmentBytes: 200 });
      await appendAll(log, texts);
      await log.close();
      expect(other.paths()).toEqual(disk.paths());
      const mixed = disk.copy();
      mixed.overwrite(second, other.bytesOf(second));
      await expectRefusal(mixed);
    });

    it("H3: refuses zeros in place of the end of a segment that is not the last", async () => {
      for (const path of disk.paths().slice(0, -1)) {
        const whole = disk.bytesOf(path);
        for (const from of [whole.length - 32, whole.length - 33, whole.length - 80]) {
          const copy = disk.copy();
          copy.overwrite(path, whole.slice().fill(0, from));
          await expectRefusal(copy, path);
        }
      }
    });

    it("H5: a segment that is followed by another may end with space that was never used", async () => {
      const [path] = disk.paths() as [string];
      const whole = disk.bytesOf(path);
      disk.overwrite(path, Buffer.concat([whole, new Uint8Array(300)]));
      const log = await openLog(disk);
      expect(log.warnings).toEqual([]);
      expect(await textsOf(log)).toEqual(texts);
      await log.close();
      disk.overwrite(path, Buffer.concat([whole, new Uint8Array(300), bytes("x")]));
      await expectRefusal(disk, path);
    });

    it("H3: refuses a torn end in a segment that is not the last", async () => {
      for (const path of disk.paths().slice(0, -1)) {
        const copy = disk.copy();
        const whole = disk.bytesOf(path);
        for (const cut of [whole.length - 1, whole.length - 32, whole.length - 40]) {
          copy.overwrite(path, whole.subarray(0, cut));
          await expectRefusal(copy, path);
        }
      }
    });
  });

  describe("with checkpoints", () => {
    beforeEach(async () => {
      disk = new Disk();
      const log = await openLog(disk, { segmentBytes: 200 });
      for (const round of [1, 2, 3]) {
        await appendAll(log, numbered(`r${round}-`, 10));
        await log.writeCheckpoint(log.status().end, bytes(`state ${round}`));
      }
      await log.close();
    });

    it("H8: uses the older checkpoint and the records since then when the newer one is broken, whichever bit of it", async () => {
      const whole = disk.bytesOf(checkpoint(30)).slice();
      for (let bit = 0; bit < whole.length * 8; bit++) {
        const flipped = whole.slice();
        flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7));
        const copy = disk.copy();
        copy.overwrite(checkpoint(30), flipped);
        const log = await openLog(copy);
        expect(log.checkpoint?.position).toBe(20n);
        expect(Buffer.from(log.checkpoint?.state ?? []).toString()).toBe("state 2");
        expect(await textsOf(log, 20n)).toEqual(numbered("r3-", 10));
        expect(log.warnings.join()).toContain(`${checkpoint(30)} is damaged`);
      }
    });

    it("H8: replaces a broken checkpoint by the next one and keeps the good one before it", async () => {
      disk.overwrite(checkpoint(30), bytes("garbage"));
      const log = await openLog(disk);
      await log.writeCheckpoint(30n, bytes("state 3 again"));
      await log.close();
      const again = await openLog(disk);
      expect(again.warnings).toEqual([]);
      expect(Buffer.from(again.checkpoint?.state ?? []).toString()).toBe("state 3 again");
      expect(disk.paths()).toContain(checkpoint(20));
    });

    it("H3: refuses when every checkpoint is broken or gone and the records before them were dropped", async () => {
      const broken = disk.copy();
      broken.overwrite(checkpoint(20), bytes("garbage"));
      broken.overwrite(checkpoint(30), bytes("garbage"));
      await expectRefusal(broken);
      const gone = disk.copy();
      gone.delete(checkpoint(20));
      gone.delete(checkpoint(30));
      await expectRefusal(gone);
    });

    it("H3: refuses a log that ends before what its checkpoint covers", async () => {
      const paths = disk.paths().filter((path) => path.includes("segment"));
      const last = paths.at(-1) as string;
      disk.overwrite(last, disk.bytesOf(last).subarray(0, 36));
      await expectRefusal(disk);
    });

    it("H3: refuses checkpoints without any segment", async () => {
      for (const path of disk.paths()) if (path.includes("segment")) disk.delete(path);
      await expectRefusal(disk);
    });
  });
});
