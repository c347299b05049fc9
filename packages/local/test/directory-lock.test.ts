import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rename, symlink, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { Worker } from "node:worker_threads";
import { FileLog } from "@krabka/local";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { bundle, scratch } from "./bundle.js";
import { rejection, textsOf } from "./log-script.js";

describe("The lock of a directory", () => {
  let base: Awaited<ReturnType<typeof scratch>>;
  let opener: string;
  let directory: string;
  let count = 0;

  beforeAll(async () => {
    base = await scratch();
    opener = await bundle("opener.ts", base.directory);
  });

  afterAll(() => base.remove());

  beforeEach(() => {
    count += 1;
    directory = join(base.directory, `log-${count}`);
  });

  const start = async (): Promise<{ readonly child: ChildProcess; readonly said: string }> => {
    const child = spawn(process.execPath, [opener, directory], { stdio: ["ignore", "pipe", "inherit"] });
    const [chunk] = (await once(child.stdout, "data")) as [Buffer];
    return { child, said: chunk.toString().trim() };
  };

  const kill = async (child: ChildProcess): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };

  it("H10: of 16 processes that open at once exactly one gets in, again and again after a kill -9", async () => {
    for (let round = 0; round < 2; round++) {
      const openers = await Promise.all(Array.from({ length: 16 }, start));
      const said = openers.map((one) => one.said).sort();
      expect(said).toEqual([...Array.from({ length: 15 }, () => "IN_USE"), "open"]);
      expect((await rejection(FileLog.open(directory))).message).toContain(`${directory} is open already`);
      await Promise.all(openers.map(({ child }) => kill(child)));
      await (await FileLog.open(directory)).close();
    }
  }, 60_000);

  it("H10: lock files that somebody left, empty or naming a live process, keep nobody out", async () => {
    await mkdir(directory);
    for (const [name, content] of [
      ["LOCK", ""],
      ["lock", String(process.pid)],
      ["log.lock", "1"],
      [".lock", "garbage"],
    ] as const) {
      await writeFile(join(directory, name), content);
    }
    const log = await FileLog.open(directory);
    await log.close();
  });

  it("H11: a second handle in the same process is refused, also through a symlink, a relative path and a new name", async () => {
    const log = await FileLog.open(directory);
    const link = `${directory}-link`;
    await symlink(directory, link);
    for (const path of [directory, link, relative(process.cwd(), directory), `${directory}/.`]) {
      expect((await rejection(FileLog.open(path))).code, path).toBe("IN_USE");
    }
    await rename(directory, `${directory}-moved`);
    expect((await rejection(FileLog.open(`${directory}-moved`))).code).toBe("IN_USE");
    await rename(`${directory}-moved`, directory);
    await log.close();
    await (await FileLog.open(link)).close();
  });

  it("H11: a worker thread and the main thread exclude each other", async () => {
    const log = await FileLog.open(directory);
    const start = async (): Promise<{ readonly worker: Worker; readonly said: string }> => {
      const worker = new Worker(opener, { argv: [directory] });
      const [said] = (await once(worker, "message")) as [string];
      return { worker, said };
    };
    const early = await start();
    expect(early.said).toBe("IN_USE");
    await early.worker.terminate();
    await log.close();
    const late = await start();
    expect(late.said).toBe("open");
    expect((await rejection(FileLog.open(directory))).code).toBe("IN_USE");
    const ended = once(late.worker, "exit");
    late.worker.postMessage("close");
    await ended;
    await (await FileLog.open(directory)).close();
  });

  it("keeps the lock while child processes come and go", async () => {
    const log = await FileLog.open(directory);
    for (let i = 0; i < 3; i++) await once(spawn(process.execPath, ["-e", ""], { stdio: "inherit" }), "exit");
    const { child, said } = await start();
    expect(said).toBe("IN_USE");
    await kill(child);
    expect(await textsOf(log)).toEqual([]);
    await log.close();
  });
});
