import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ABSENT, FileLog, LogBackedCoordinationService } from "@krabka/local";

// Durable compare-and-sets of 100 bytes per second, for so many callers that each wait for their own answer.
const SECONDS = 3;
const directory = await mkdtemp(join(tmpdir(), "krabka-throughput-"));
const log = await FileLog.open(join(directory, "log"));
const service = await LogBackedCoordinationService.open(log);
for (const callers of [1, 8, 64, 256]) {
  const latencies: number[] = [];
  const until = performance.now() + SECONDS * 1000;
  const caller = async (lane: number): Promise<void> => {
    const key = `${callers}-${lane}`;
    let expected: Uint8Array | typeof ABSENT = ABSENT;
    for (let step = 0; performance.now() < until; step++) {
      const value = Buffer.alloc(100, step);
      const startedMs = performance.now();
      const result = await service.compareAndSet(key, expected, value);
      if (!result.success) throw new Error("Nobody else writes");
      latencies.push(performance.now() - startedMs);
      expected = value;
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, lane) => caller(lane)));
  latencies.sort((a, b) => a - b);
  const at = (share: number): string => (latencies[Math.floor(latencies.length * share)] ?? 0).toFixed(2);
  const perSecond = Math.round(latencies.length / SECONDS);
  console.log(`${callers} callers: ${perSecond}/s, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`);
}
await service.close();
await log.close();
await rm(directory, { recursive: true });
