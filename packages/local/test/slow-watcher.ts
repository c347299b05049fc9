import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ABSENT, FileLog, LogBackedCoordinationService } from "@krabka/local";

// Changes of 1 kB while one watcher never reads and one reads all, and the same without watchers, in turns.
const changes = Number(process.argv[2] ?? 1_000_000);
const LANES = 16;
const TURNS = 200;
const value = new Uint8Array(1024);

const keptBytes = (): number => {
  // Buffers that one collection frees are swept while the program goes on; the next collection waits for that.
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};

/** A service on a log of its own, and what its writers waited. */
const open = async (directory: string) => {
  const log = await FileLog.open(directory);
  const service = await LogBackedCoordinationService.open(log, { watchQueueNotices: 100, rememberedNotices: 500 });
  const waitedMs = new Float64Array(changes);
  let done = 0;
  const known = new Set<string>();
  const write = async (key: string): Promise<void> => {
    const startedMs = performance.now();
    const result = await service.compareAndSet(key, known.has(key) ? value : ABSENT, value);
    waitedMs[done] = performance.now() - startedMs;
    done += 1;
    if (!result.success) throw new Error(`${key} was refused: ${result.mismatch}`);
    known.add(key);
  };
  const turn = async (count: number): Promise<void> => {
    let left = count;
    const lane = async (index: number): Promise<void> => {
      for (; left > 0; ) {
        left -= 1;
        await write(`k${index}`);
      }
    };
    await Promise.all(Array.from({ length: LANES }, (_, index) => lane(index)));
  };
  const p99Ms = (): number => waitedMs.sort()[Math.floor(waitedMs.length * 0.99)] ?? 0;
  const close = async (): Promise<void> => {
    await service.close();
    await log.close();
  };
  return { service, turn, p99Ms, close };
};

const base = await mkdtemp(join(tmpdir(), "krabka-slow-watcher-"));
const watched = await open(join(base, "watched"));
const alone = await open(join(base, "alone"));

let free = (): void => undefined;
const freed = new Promise<void>((resolve) => {
  free = resolve;
});
const told: string[] = [];
let resumeFrom = "";
await watched.service.watch(async (notice) => {
  told.push(notice.type);
  if (notice.type === "overflow") resumeFrom = notice.resumeFrom;
  await freed;
});
let read = 0;
let lastRevision = 0n;
await watched.service.watch((notice) => {
  if (notice.type === "overflow") throw new Error("The reader was dropped");
  const revision = BigInt(notice.at.split("@")[0] ?? "");
  if (revision <= lastRevision) throw new Error(`Revision ${revision} came after ${lastRevision}`);
  lastRevision = revision;
  read += 1;
});

// What both keep anyway is there after the first turn.
await watched.turn(changes / TURNS);
await alone.turn(changes / TURNS);
const before = keptBytes();
for (let turn = 1; turn < TURNS; turn++) {
  await watched.turn(changes / TURNS);
  await alone.turn(changes / TURNS);
}
const grownBytes = keptBytes() - before;
free();
while (!told.includes("overflow") || read < changes) await new Promise((resolve) => setTimeout(resolve, 5));
await new Promise((resolve) => setTimeout(resolve, 50));
const result = {
  changes,
  read,
  told,
  resumeFrom,
  grownBytes,
  watchedP99Ms: watched.p99Ms(),
  aloneP99Ms: alone.p99Ms(),
};
if (process.send === undefined) console.log(result);
else process.send({ kind: "result", text: JSON.stringify(result) });
await watched.close();
await alone.close();
await rm(base, { recursive: true });
