import { FileLog, type FileLogOptions, type LocalError } from "@krabka/local";
import { describe, expect, it } from "vitest";
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

/** Without space ahead, with a step that fills the segment, and with several in a segment. */
const LAYOUTS: readonly FileLogOptions[] = [
  { segmentBytes: 120, aheadBytes: 0 },
  { segmentBytes: 120 },
  { segmentBytes: 300, aheadBytes: 100 },
];

interface Progress {
  /** What `append` resolved for. */
  readonly acknowledged: string[];
  /** All that was ever given to `append`. */
  readonly attempted: string[];
  failure: LocalError | undefined;
}

/** Creates the log, fills several segments, writes three checkpoints, and stops at the first failure. */
const script = async (disk: Disk, layout: FileLogOptions): Promise<Progress> => {
  const progress: Progress = { acknowledged: [], attempted: [], failure: undefined };
  try {
    const log = await openLog(disk, layout);
    for (const text of numbered("s", 18)) {
      progress.attempted.push(text);
      await log.append(bytes(text));
      progress.acknowledged.push(text);
      if (progress.acknowledged.length % 6 === 0) {
        await log.writeCheckpoint(log.status().end, bytes(JSON.stringify(progress.acknowledged)));
      }
    }
    await log.close();
  } catch (error) {
    progress.failure = error as LocalError;
  }
  return progress;
};

/** What a service would know: the checkpoint's state and the records since then. */
const stateOf = async (log: FileLog): Promise<string[]> => {
  const { checkpoint } = log;
  const covered = checkpoint === undefined ? [] : (JSON.parse(Buffer.from(checkpoint.state).toString()) as string[]);
  return [...covered, ...(await textsOf(log, checkpoint?.position ?? 0n))];
};

/** Every acknowledged step is there, nothing that nobody wrote, nothing twice, and the log takes more. */
const expectRecovered = async (disk: Disk, layout: FileLogOptions, progress: Progress, hint: string): Promise<void> => {
  const log = await openLog(disk, layout);
  const state = await stateOf(log);
  expect(state.slice(0, progress.acknowledged.length), hint).toEqual(progress.acknowledged);
  expect(progress.attempted.slice(0, state.length), hint).toEqual(state);
  await log.append(bytes("more"));
  await log.close();
  disk.unplug();
  const again = await openLog(disk, layout);
  expect(await stateOf(again), hint).toEqual([...state, "more"]);
  await again.close();
};

const callsOfScript = async (kinds: RegExp, layout: FileLogOptions): Promise<number> => {
  const disk = new Disk();
  await script(disk, layout);
  return disk.calls.filter((call) => kinds.test(call)).length;
};

describe.each(LAYOUTS)("Failing storage with %o", (layout) => {
  it("H7: recovers every acknowledged step after a crash before any system call, of creation and checkpoints too", async () => {
    const total = await callsOfScript(/./, layout);
    expect(total).toBeGreaterThan(80);
    for (let k = 0; k < total; k++) {
      for (const kept of [0, 0.5, 1]) {
        const disk = new Disk();
        const random = randomFrom(k);
        disk.faults.before = () => {
          if (disk.calls.length >= k) throw new Error("the machine is off");
        };
        const progress = await script(disk, layout);
        expect(progress.failure?.code, `call ${k}`).toBe("FAILED");
        disk.unplug(
          () => random() < kept,
          () => random() < kept,
        );
        await expectRecovered(disk, layout, progress, `crash before call ${k} with ${kept} of the unsynced pages`);
      }
    }
  });

  it("H7: the process dying before any system call costs nothing either", async () => {
    const total = await callsOfScript(/./, layout);
    for (let k = 0; k < total; k++) {
      const disk = new Disk();
      disk.faults.before = () => {
        if (disk.calls.length >= k) throw new Error("killed");
      };
      const progress = await script(disk, layout);
      disk.kill();
      await expectRecovered(disk, layout, progress, `killed before call ${k}`);
    }
  });

  it("H7: power that goes during the opening after a death costs nothing either", async () => {
    const total = await callsOfScript(/./, layout);
    for (let k = 0; k < total; k++) {
      for (let opened = false, j = 0; !opened; j++) {
        const disk = new Disk();
        const random = randomFrom(k);
        disk.faults.before = () => {
          if (disk.calls.length >= k) throw new Error("killed");
        };
        const progress = await script(disk, layout);
        disk.kill();
        disk.faults.before = () => {
          if (disk.calls.length >= k + j) throw new Error("the machine is off");
        };
        opened = await openLog(disk, layout).then(
          () => true,
          () => false,
        );
        disk.unplug(
          () => random() < 0.5,
          () => random() < 0.5,
        );
        await expectRecovered(
          disk,
          layout,
          progress,
          `killed before call ${k}, power gone before call ${j} after that`,
        );
      }
    }
  });

  it("H7: a file is written aside, synced, renamed, and its name synced, before anything is dropped", async () => {
    const disk = new Disk();
    await script(disk, layout);
    const named = disk.calls.filter((call) => /^(create|write|sync|rename|syncdir|remove) /.test(call));
    for (const [index, call] of named.entries()) {
      const name = /^rename (.+)$/.exec(call)?.[1];
      if (name === undefined) continue;
      expect(named.slice(index - 3, index)).toEqual([`create ${name}.tmp`, `write ${name}.tmp`, `sync ${name}.tmp`]);
      expect(named[index + 1]).toBe("syncdir log");
    }
    const removal = named.findIndex((call) => call.startsWith("remove segment"));
    expect(removal).toBeGreaterThan(0);
    const checkpoints = named.slice(0, removal).filter((call) => call.startsWith("rename checkpoint"));
    expect(checkpoints.length).toBeGreaterThanOrEqual(2);
  });

  it("H1: one failed sync, whichever it is, refuses everything until the log is opened again", async () => {
    const total = await callsOfScript(/^sync/, layout);
    expect(total).toBeGreaterThan(30);
    for (let k = 0; k < total; k++) {
      for (const thenPowerLoss of [false, true]) {
        const disk = new Disk();
        let count = 0;
        let opened: FileLog | undefined;
        disk.faults.sync = () => {
          if (count++ === k) throw new Error("EIO");
        };
        const acknowledged: string[] = [];
        const attempted: string[] = [];
        const failures: string[] = [];
        try {
          opened = await openLog(disk, layout);
        } catch (error) {
          failures.push((error as LocalError).code);
        }
        for (const text of numbered("s", 18)) {
          if (opened === undefined) break;
          attempted.push(text);
          try {
            await opened.append(bytes(text));
            expect(failures).toEqual([]);
            acknowledged.push(text);
            const { end } = opened.status();
            if (end % 6n === 0n) await opened.writeCheckpoint(end, bytes(JSON.stringify(acknowledged)));
          } catch (error) {
            failures.push((error as LocalError).code);
          }
        }
        expect(new Set(failures), `sync ${k}`).toEqual(new Set(["FAILED"]));
        await opened?.close();
        if (thenPowerLoss) disk.unplug();
        else disk.kill();
        await expectRecovered(disk, layout, { acknowledged, attempted, failure: undefined }, `sync ${k}`);
      }
    }
  });

  it("H1: what an opening found in the cache only is on the disk before anything is built on it", async () => {
    const disk = new Disk();
    const long = "b".repeat(1000);
    const log = await openLog(disk);
    await log.append(bytes("a"));
    disk.faults.sync = () => {
      throw new Error("EIO");
    };
    disk.faults.before = (call) => {
      if (call === "truncate") throw new Error("EIO");
    };
    expect((await rejection(log.append(bytes(long)))).code).toBe("FAILED");
    disk.kill();
    const again = await openLog(disk);
    expect(await textsOf(again)).toEqual(["a", long]);
    await again.append(bytes("c"));
    disk.unplug();
    expect(await textsOf(await openLog(disk))).toEqual(["a", long, "c"]);
  });

  it("H4: writes on until all bytes are taken, however few at a time", async () => {
    for (const most of [1, 7, 33]) {
      const disk = new Disk();
      disk.faults.take = (count) => Math.min(count, most);
      const progress = await script(disk, layout);
      expect(progress.failure).toBeUndefined();
      disk.unplug();
      await expectRecovered(disk, layout, progress, `${most} bytes at a time`);
    }
  });

  it("H4: rejects with nothing left behind the last record when a write makes no progress", async () => {
    const disk = new Disk();
    const log = await openLog(disk, layout);
    await log.append(bytes("a"));
    const path = disk.paths()[0] as string;
    const before = disk.bytesOf(path).slice(0, endsOf(["a"])[1]);
    let room = 10;
    disk.faults.take = (count) => {
      const taken = Math.min(count, room);
      room -= taken;
      return taken;
    };
    const error = await rejection(log.append(bytes("b")));
    expect(error.code).toBe("FAILED");
    expect(error.message).toContain("took nothing");
    expect(disk.bytesOf(path)).toEqual(before);
    expect((await rejection(log.append(bytes("c")))).code).toBe("FAILED");
    await log.close();
    disk.faults = {};
    expect(await textsOf(await openLog(disk, layout))).toEqual(["a"]);
  });

  it("H8: a full disk at any byte loses no acknowledged step", async () => {
    let used = 0;
    const measuring = new Disk();
    measuring.faults.take = (count) => {
      used += count;
      return count;
    };
    await script(measuring, layout);
    for (let room = 0; room < used; room += runs(1) > 1 ? 1 : 7) {
      const disk = new Disk();
      let left = room;
      disk.faults.take = (count) => {
        if (left === 0) throw new Error("ENOSPC");
        const taken = Math.min(count, left);
        left -= taken;
        return taken;
      };
      const progress = await script(disk, layout);
      expect(progress.failure?.code, `room for ${room} bytes`).toBe("FAILED");
      if (room % 2 === 0) disk.unplug();
      else disk.kill();
      await expectRecovered(disk, layout, progress, `room for ${room} bytes`);
    }
  });

  it("H8: a disk that fills up loses no acknowledged step, whether it takes the part of a write that fits or none", async () => {
    for (const reservesRoom of [false, true]) {
      let failures = 1;
      for (let roomBytes = 0; failures > 0; roomBytes += runs(1) > 1 ? 1 : 5) {
        const disk = new Disk();
        disk.faults = { roomBytes, reservesRoom };
        const progress = await script(disk, layout);
        failures = progress.failure === undefined ? 0 : 1;
        if (failures > 0) expect(progress.failure?.code, `room for ${roomBytes} bytes`).toBe("FAILED");
        if (roomBytes % 2 === 0) disk.unplug();
        else disk.kill();
        await expectRecovered(disk, layout, progress, `room for ${roomBytes} bytes`);
      }
    }
  });

  it("H8: space ahead that finds no room fails no record that fits", async () => {
    const texts = numbered("s", 6);
    const ends = endsOf(texts);
    for (const reservesRoom of [false, true]) {
      for (let roomBytes = ends[0] as number; roomBytes < (ends.at(-1) as number); roomBytes++) {
        const disk = new Disk();
        const log = await openLog(disk, { ...layout, segmentBytes: 1000 });
        disk.faults = { roomBytes, reservesRoom };
        const fits = ends.filter((end) => end <= roomBytes).length - 1;
        await appendAll(log, texts.slice(0, fits));
        expect((await rejection(log.append(bytes(texts[fits] as string)))).code).toBe("FAILED");
        disk.unplug();
        expect(await textsOf(await openLog(disk, layout))).toEqual(texts.slice(0, fits));
      }
    }
  });

  it("frees the directory when an opening fails", async () => {
    const disk = new Disk();
    disk.faults.before = (call) => {
      if (call === "list") throw new Error("EIO");
    };
    expect((await rejection(FileLog.open(DIRECTORY, { fileSystem: disk.process() }))).code).toBe("FAILED");
    disk.faults = {};
    await openLog(disk);
  });
});
