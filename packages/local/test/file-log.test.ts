import { constants, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { nodeFileSystem } from "../src/log/node-file-system.js";
import { scratch } from "./bundle.js";
import { Disk } from "./disk.js";
import { appendAll, bytes, DIRECTORY, numbered, openLog, rejection, textsOf } from "./log-script.js";

describe("FileLog", () => {
  it("gives records dense positions in the order of the calls and finds them again", async () => {
    const disk = new Disk();
    const log = await openLog(disk);
    const positions = await Promise.all(["a", "", "c"].map((text) => log.append(bytes(text))));
    expect(positions).toEqual([0n, 1n, 2n]);
    await log.close();
    const again = await openLog(disk);
    expect(await textsOf(again)).toEqual(["a", "", "c"]);
    expect(await again.append(bytes("d"))).toBe(3n);
  });

  it("acknowledges only what survives losing everything that was not synced", async () => {
    const disk = new Disk();
    const log = await openLog(disk);
    await appendAll(log, ["a", "b"]);
    disk.unplug();
    expect(await textsOf(await openLog(disk))).toEqual(["a", "b"]);
  });

  it("lets calls that come while the disk works share the next sync", async () => {
    const disk = new Disk();
    const log = await openLog(disk);
    const before = disk.calls.filter((call) => call.startsWith("sync ")).length;
    const first = log.append(bytes("first"));
    let rest: Promise<bigint>[] = [];
    disk.faults.sync = () => {
      if (rest.length === 0) rest = numbered("r", 100).map((text) => log.append(bytes(text)));
    };
    await first;
    await Promise.all(rest);
    expect(disk.calls.filter((call) => call.startsWith("sync ")).length - before).toBe(2);
    expect(await textsOf(log)).toHaveLength(101);
  });

  it("H6: goes on in a new segment, also when the log ends exactly at a segment's or a frame's end", async () => {
    const disk = new Disk();
    const expected: string[] = [];
    for (let round = 0; round < 12; round++) {
      const log = await openLog(disk, { segmentBytes: 150 });
      expect(await textsOf(log)).toEqual(expected);
      for (let i = 0; i <= round % 3; i++) {
        const text = `round ${round} record ${i}`;
        await log.append(bytes(text));
        expected.push(text);
      }
      await log.close();
    }
    expect(disk.paths().length).toBeGreaterThan(4);
    expect(await textsOf(await openLog(disk), 20n)).toEqual(expected.slice(20));
  });

  it("keeps two checkpoints and the records since the older one", async () => {
    const disk = new Disk();
    const log = await openLog(disk, { segmentBytes: 100 });
    for (let round = 1; round <= 5; round++) {
      await appendAll(log, numbered(`r${round}-`, 10));
      await log.writeCheckpoint(log.status().end, bytes(`state ${round}`));
    }
    expect(disk.paths().filter((path) => path.includes("checkpoint"))).toEqual([
      `${DIRECTORY}/checkpoint-00000000000000000040.state`,
      `${DIRECTORY}/checkpoint-00000000000000000050.state`,
    ]);
    expect(log.status()).toMatchObject({ end: 50n, checkpointPosition: 50n, tailBytes: 0 });
    expect(log.status().start).toBeGreaterThan(35n);
    expect(log.status().start).toBeLessThanOrEqual(40n);
    expect((await rejection(log.read(0n)[Symbol.asyncIterator]().next())).code).toBe("TOO_OLD");
    disk.unplug();
    const again = await openLog(disk);
    expect(Buffer.from(again.checkpoint?.state ?? []).toString()).toBe("state 5");
    expect(await textsOf(again, 50n)).toEqual([]);
    expect(await textsOf(again, 40n)).toEqual(numbered("r5-", 10));
  });

  it("refuses checkpoints that cover what is not durable, or less than the newest one", async () => {
    const log = await openLog(new Disk());
    await appendAll(log, ["a", "b"]);
    expect((await rejection(log.writeCheckpoint(3n, bytes("x")))).code).toBe("INVALID_ARGUMENT");
    await log.writeCheckpoint(2n, bytes("x"));
    expect((await rejection(log.writeCheckpoint(1n, bytes("x")))).code).toBe("INVALID_ARGUMENT");
  });

  it("refuses records that are too large and goes on", async () => {
    const log = await openLog(new Disk(), { maxRecordBytes: 4 });
    expect((await rejection(log.append(bytes("12345")))).message).toBe("A record must be at most 4 bytes; got 5 bytes");
    expect(await log.append(bytes("1234"))).toBe(0n);
  });

  it("waits at close for what was appended and refuses what comes later", async () => {
    const disk = new Disk();
    const log = await openLog(disk);
    const appended = log.append(bytes("a"));
    const closed = log.close();
    expect((await rejection(log.append(bytes("b")))).code).toBe("CLOSED");
    expect(await appended).toBe(0n);
    await closed;
    await log.close();
    expect(await textsOf(await openLog(disk))).toEqual(["a"]);
  });

  it("refuses a second opening until the first was closed", async () => {
    const disk = new Disk();
    const log = await openLog(disk);
    expect((await rejection(openLog(disk))).code).toBe("IN_USE");
    await log.close();
    await openLog(disk);
  });

  it("an aborted opening changes nothing and frees the directory", async () => {
    const disk = new Disk();
    const log = await openLog(disk, { segmentBytes: 100 });
    await appendAll(log, numbered("r", 10));
    await log.close();
    const before = disk.calls.length;
    for (const reads of [0, 1, 3]) {
      const abort = new AbortController();
      let count = 0;
      disk.faults.before = (call) => {
        if (call === "read") count += 1;
        if (count >= reads) abort.abort(new Error("no longer wanted"));
      };
      const error = await rejection(openLog(disk, { signal: abort.signal }));
      expect(error).toMatchObject({ code: "ABORTED", cause: new Error("no longer wanted") });
      expect(count).toBeLessThanOrEqual(reads + 1);
      disk.faults = {};
    }
    const changing = disk.calls.slice(before).filter((call) => !/^(lock|mkdir|list|open|size|read) /.test(call));
    expect(changing).toEqual([]);
    expect(await textsOf(await openLog(disk))).toEqual(numbered("r", 10));
  });

  it("H1: a write to the log's end on a real disk is one that waits for the disk", async () => {
    const { directory, remove } = await scratch();
    try {
      const path = `${directory}/file`;
      await writeFile(path, "");
      const file = await nodeFileSystem.openDurable(path);
      const fd = readdirSync("/proc/self/fd").find((name) => targetOf(name) === path);
      const flags = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1];
      expect(Number.parseInt(flags ?? "", 8) & constants.O_DSYNC).toBe(constants.O_DSYNC);
      expect(await file.write(bytes("abc"), 2)).toBe(3);
      expect(readFileSync(path, "latin1")).toBe("\0\0abc");
      await file.truncate(3);
      await file.close();
      expect(readFileSync(path, "latin1")).toBe("\0\0a");
      await expect(nodeFileSystem.openDurable(`${directory}/missing`)).rejects.toThrow("ENOENT");
    } finally {
      await remove();
    }
  });

  it("files grow in steps, and reopening fills the space that is there", async () => {
    const disk = new Disk();
    const sizes = async (texts: readonly string[]): Promise<number[]> => {
      const log = await openLog(disk, { aheadBytes: 100, segmentBytes: 250 });
      await appendAll(log, texts);
      await log.close();
      return disk.paths().map((path) => disk.bytesOf(path).length);
    };
    expect(await sizes([])).toEqual([36]);
    // 36 bytes of header, and 38 for each record.
    expect(await sizes(["r1"])).toEqual([100]);
    expect(await sizes(["r2"])).toEqual([200]);
    expect(await sizes(["r3"])).toEqual([200]);
    expect(await sizes(["r4", "r5"])).toEqual([250]);
    expect(await sizes(["r6"])).toEqual([264]);
    expect(await textsOf(await openLog(disk))).toEqual(numbered("r", 7).slice(1));
  });
});

const targetOf = (fd: string): string | undefined => {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return undefined;
  }
};
