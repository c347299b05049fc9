import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EmbeddedTransport, FileLog } from "@krabka/local";
import { percentile, printTable } from "./figures.js";
import { HandoverLine } from "./handover-line.js";

const WARM_UP = 20;
const HANDOVERS = 200;
/** What a handover makes durable one after the other: release, mint, grant. */
const FSYNCS = 3;

/** Handovers on the embedded transport in one process, in turn with bare appends to such a log. */
export async function measureEmbeddedHandover(json: boolean): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "krabka-bench-"));
  const owner = await EmbeddedTransport.open({ directory: join(directory, "broker") });
  const log = await FileLog.open(join(directory, "bare"));
  const line = new HandoverLine(() => owner.sibling({}));
  await line.prepare();
  const appendsMs: number[] = [];
  const handoversMs: number[] = [];
  for (let i = 0; i < WARM_UP + HANDOVERS; i++) {
    const startedAtMs = performance.now();
    await log.append(Buffer.alloc(100, i));
    const appendMs = performance.now() - startedAtMs;
    const handoverMs = await line.once();
    if (i < WARM_UP) continue;
    appendsMs.push(appendMs);
    handoversMs.push(handoverMs);
  }
  await line.close();
  await log.close();
  await owner.close();
  await rm(directory, { recursive: true });
  printTable([
    { name: "one durable append", samplesMs: appendsMs },
    { name: "resign() to acquire()", samplesMs: handoversMs },
  ]);
  const value = percentile(handoversMs, 0.5);
  const baseline = FSYNCS * percentile(appendsMs, 0.5);
  console.log(`p50 over the cost of its ${FSYNCS} fsyncs: ${(value - baseline).toFixed(2)} ms`);
  if (json)
    console.log(JSON.stringify({ id: "P10", value, baseline, ratio: value / baseline, unit: "ms", n: HANDOVERS }));
}
