import { type DurableLog, FileLog, type FileLogOptions, LocalError } from "@krabka/local";
import type { Disk } from "./disk.js";

export const DIRECTORY = "/data/log";

export const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

export const openLog = (disk: Disk, options: FileLogOptions = {}): Promise<FileLog> =>
  FileLog.open(DIRECTORY, { ...options, fileSystem: disk.process() });

const SEGMENT_HEADER_BYTES = 36;
/** Of a frame with one record: its header and the record's length. */
const FRAME_BYTES = 36;

/** Where the header and each frame end, if every text is a frame of its own in one segment. */
export function endsOf(texts: readonly string[]): readonly number[] {
  const ends = [SEGMENT_HEADER_BYTES];
  for (const text of texts) ends.push((ends.at(-1) as number) + FRAME_BYTES + bytes(text).length);
  return ends;
}

/** Every record that is kept, as text. */
export async function textsOf(log: DurableLog, from = log.status().start): Promise<string[]> {
  const texts: string[] = [];
  for await (const record of log.read(from)) texts.push(Buffer.from(record.bytes).toString());
  return texts;
}

export async function appendAll(log: DurableLog, texts: readonly string[]): Promise<void> {
  for (const text of texts) await log.append(bytes(text));
}

/** The error a promise rejects with. */
export async function rejection(promise: Promise<unknown>): Promise<LocalError> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if ("error" in outcome && LocalError.is(outcome.error)) return outcome.error;
  throw new Error(`A LocalError was wanted; got ${String("error" in outcome ? outcome.error : outcome.value)}`);
}

export const numbered = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}${index}`);

/** Runs what scripts of other lengths need more of. Raise `KRABKA_TEST_RUNS` for longer runs. */
export const runs = (byDefault: number): number => byDefault * Number(process.env.KRABKA_TEST_RUNS ?? 1);

/** A stream of numbers in 0..1 that depends on the seed alone (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
