import { readdir } from "node:fs/promises";

/** Threads of this process; librdkafka's too. Linux only. */
export const threadCount = async (): Promise<number> => (await readdir("/proc/self/task")).length;
