import { readdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** What this process holds. */
export interface Footprint {
  /** Native ones too. Linux only. */
  readonly threads: number;
  /** libuv's handles and Node's timers by kind. */
  readonly handles: Readonly<Record<string, number>>;
  readonly heapBytes: number;
  readonly residentBytes: number;
}

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

const handlesByKind = (): Record<string, number> => {
  const { libuv } = process.report.getReport() as unknown as { readonly libuv: readonly { readonly type: string }[] };
  const timers = process.getActiveResourcesInfo().filter((kind) => kind === "Timeout" || kind === "Immediate");
  const counts: Record<string, number> = {};
  for (const kind of [...libuv.map(({ type }) => type), ...timers]) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
};

export const footprint = async (): Promise<Footprint> => {
  // What was freed by callbacks of the first collection goes in the second.
  for (let turn = 0; turn < 3; turn++) {
    collectGarbage();
    await sleep(20);
  }
  const { heapUsed, rss } = process.memoryUsage();
  const threads = (await readdir("/proc/self/task")).length;
  return { threads, handles: handlesByKind(), heapBytes: heapUsed, residentBytes: rss };
};
