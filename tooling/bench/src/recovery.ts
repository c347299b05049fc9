import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ABSENT, FileLog, LogBackedCoordinationService } from "@krabka/local";
import { printTable } from "./figures.js";

const OPERATIONS = 1_000_000;
const CALLERS = 512;
const KEYS = 1_000;
const VALUE_BYTES = 100;
const TAIL_BYTES = 64 * 1024 * 1024;
const OPENINGS = 7;

/** Opening a directory with a million operations behind its checkpoint and a tail of 64 MiB to replay. */
export async function measureRecovery(json: boolean): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "krabka-bench-"));
  try {
    const tail = await fill(directory);
    const samplesMs: number[] = [];
    for (let i = 0; i < OPENINGS; i++) samplesMs.push(await openOnce(directory));
    const tailMib = (tail.tailBytes / 1024 / 1024).toFixed(1);
    console.log(`${OPERATIONS} operations behind the checkpoint, ${tail.operations} in a tail of ${tailMib} MiB`);
    printTable([{ name: "opening", samplesMs }]);
    const value = [...samplesMs].sort((a, b) => a - b)[Math.floor(OPENINGS / 2)] as number;
    if (json)
      console.log(JSON.stringify({ id: "P9", value, baseline: 1_000, ratio: value / 1_000, unit: "ms", n: OPENINGS }));
  } finally {
    await rm(directory, { recursive: true });
  }
}

async function fill(directory: string): Promise<{ readonly tailBytes: number; readonly operations: number }> {
  const log = await FileLog.open(directory);
  // These are covered by checkpoints as usual; what follows is left as a tail of the wanted size.
  const first = await LogBackedCoordinationService.open(log);
  await write(first, OPERATIONS);
  await first.close();
  await log.close();
  const again = await FileLog.open(directory);
  const second = await LogBackedCoordinationService.open(again, { checkpointAfterBytes: 1024 * 1024 * 1024 });
  let operations = 0;
  while (again.status().tailBytes < TAIL_BYTES) operations += await write(second, 20_000);
  const { tailBytes } = again.status();
  await second.close();
  await again.close();
  return { tailBytes, operations };
}

async function write(service: LogBackedCoordinationService, operations: number): Promise<number> {
  let left = operations;
  const values = new Map<string, Uint8Array | typeof ABSENT>();
  const caller = async (lane: number) => {
    while (left > 0) {
      left -= 1;
      const key = `key-${lane}-${left % Math.ceil(KEYS / CALLERS)}`;
      const known = values.get(key) ?? (await service.get(key)).found?.value ?? ABSENT;
      const next = Buffer.alloc(VALUE_BYTES, left);
      const result = await service.compareAndSet(key, known, next);
      if (!result.success) throw new Error("Nobody else writes");
      values.set(key, next);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, (_, lane) => caller(lane)));
  return operations;
}

async function openOnce(directory: string): Promise<number> {
  const startedAtMs = performance.now();
  const log = await FileLog.open(directory);
  const service = await LogBackedCoordinationService.open(log, { checkpointAfterBytes: 1024 * 1024 * 1024 });
  const tookMs = performance.now() - startedAtMs;
  await service.close();
  await log.close();
  return tookMs;
}
