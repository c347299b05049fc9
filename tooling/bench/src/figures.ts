/** One line of a result: a name and its samples in milliseconds. */
export interface Series {
  readonly name: string;
  readonly samplesMs: readonly number[];
}

/** The sample at a share of all, such as 0.5 for the median (nearest rank). */
export function percentile(samplesMs: readonly number[], share: number): number {
  if (samplesMs.length === 0) throw new RangeError("A percentile needs at least one sample");
  const sorted = [...samplesMs].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] as number;
}

export function printTable(series: readonly Series[]): void {
  const width = Math.max(...series.map(({ name }) => name.length));
  console.log(`${"".padEnd(width)}       n      min      p50      p99      max   (ms)`);
  for (const { name, samplesMs } of series) {
    const figures = [0, 0.5, 0.99, 1].map((share) => percentile(samplesMs, share).toFixed(2).padStart(8));
    console.log(`${name.padEnd(width)}  ${String(samplesMs.length).padStart(6)} ${figures.join(" ")}`);
  }
}

/** The line for machines: the median of what was measured against the median of its baseline. */
export function printJson(id: string, value: Series, baseline: Series): void {
  const [p50, basis] = [percentile(value.samplesMs, 0.5), percentile(baseline.samplesMs, 0.5)];
  const line = { id, value: p50, baseline: basis, ratio: p50 / basis, unit: "ms", n: value.samplesMs.length };
  console.log(JSON.stringify(line));
}
