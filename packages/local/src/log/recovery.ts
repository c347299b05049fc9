import { randomBytes } from "node:crypto";
import { damaged, type LocalError } from "../errors.js";
import { checkpointName, decodeCheckpoint, positionOfCheckpointName } from "./checkpoint-file.js";
import type { Checkpoint } from "./durable-log.js";
import { ASIDE_SUFFIX, type LogFileSystem, readWhole, writeAll, writeFileDurably } from "./file-system.js";
import { encodeFrame } from "./frame.js";
import {
  baseOfSegmentName,
  decodeSegmentHeader,
  encodeSegmentHeader,
  frameSeed,
  LOG_ID_BYTES,
  type ScannedSegment,
  type SegmentHeader,
  scanSegment,
  segmentName,
} from "./segment.js";

/** A segment as the log knows it while it is open. */
export interface Segment {
  readonly path: string;
  readonly base: bigint;
  /** Bytes up to the end of the last durable frame. */
  endBytes: number;
}

export interface RecoveredLog {
  readonly logId: Uint8Array;
  /** In order, without gaps; the last one takes the next frame. */
  readonly segments: Segment[];
  /** Position after the last record. */
  readonly end: bigint;
  /** Good ones from which the log can be replayed, oldest first. */
  readonly checkpoints: readonly Checkpoint[];
  readonly warnings: readonly string[];
}

interface FoundSegment {
  readonly path: string;
  readonly header: SegmentHeader;
  readonly scan: ScannedSegment;
  readonly lastFrame: Uint8Array;
}

const isEmpty = ({ header, scan }: FoundSegment): boolean => scan.end === header.base;

/**
 * Reads and checks a directory, then repairs what a crash may leave: a torn last frame is cut off, unfinished files are
 * removed. Nothing on disk changes before everything was found good.
 *
 * @param goOn called between files, as long as nothing has changed on disk; what it throws ends the opening.
 * @throws {LocalError} `DAMAGED`
 */
export async function recoverLog(fs: LogFileSystem, directory: string, goOn: () => void): Promise<RecoveredLog> {
  goOn();
  const names = await fs.list(directory);
  const bases = numbersOf(names, baseOfSegmentName);
  const positions = numbersOf(names, positionOfCheckpointName);
  if (bases.length === 0) {
    if (positions.length > 0) {
      const file = `${directory}/${checkpointName(positions[0] as bigint)}`;
      throw damaged({ file, offsetBytes: 0 }, "a checkpoint is there, but no segment of its log");
    }
    await removeUnfinished(fs, directory, names);
    return createLog(fs, directory);
  }

  const found = await readSegments(fs, directory, bases, goOn);
  const { logId, base: start } = (found[0] as FoundSegment).header;
  const last = found.at(-1) as FoundSegment;
  const warnings: string[] = [];
  const checkpoints = await readCheckpoints(fs, directory, positions, logId, start, last, warnings);
  await removeUnfinished(fs, directory, names);
  // Names may have been left undurable by a process that died, or by a sync that failed. As while the log is open, a segment's
  // is durable before the one ahead of it is sealed.
  await fs.syncDirectory(directory);
  const segments: Segment[] = [];
  for (const [index, segment] of found.entries()) {
    const mustBeSealed = index < found.length - 1;
    segments.push({ path: segment.path, base: segment.header.base, endBytes: await repair(fs, segment, mustBeSealed) });
    if (segment.scan.tornBytes > 0) {
      warnings.push(
        `${segment.path}: ${segment.scan.tornBytes} bytes of a torn write cut off at byte ${segment.scan.endBytes}`,
      );
    }
  }
  return { logId, segments, end: last.scan.end, checkpoints, warnings };
}

const numbersOf = (names: readonly string[], numberOf: (name: string) => bigint | undefined): bigint[] =>
  names
    .map(numberOf)
    .filter((number) => number !== undefined)
    .sort((a, b) => (a < b ? -1 : 1));

const createLog = async (fs: LogFileSystem, directory: string): Promise<RecoveredLog> => {
  const header = { logId: new Uint8Array(randomBytes(LOG_ID_BYTES)), base: 0n };
  const bytes = encodeSegmentHeader(header);
  const name = segmentName(0n);
  await writeFileDurably(fs, directory, name, bytes);
  const segment = { path: `${directory}/${name}`, base: 0n, endBytes: bytes.length };
  return { logId: header.logId, segments: [segment], end: 0n, checkpoints: [], warnings: [] };
};

const removeUnfinished = async (fs: LogFileSystem, directory: string, names: readonly string[]): Promise<void> => {
  for (const name of names) {
    const finished = name.slice(0, -ASIDE_SUFFIX.length);
    const isOurs = baseOfSegmentName(finished) !== undefined || positionOfCheckpointName(finished) !== undefined;
    if (name.endsWith(ASIDE_SUFFIX) && isOurs) await fs.remove(`${directory}/${name}`);
  }
};

const readSegments = async (
  fs: LogFileSystem,
  directory: string,
  bases: readonly bigint[],
  goOn: () => void,
): Promise<readonly FoundSegment[]> => {
  const found: FoundSegment[] = [];
  // Backwards: the end of a segment may be torn only if nothing was written to those after it.
  let next: FoundSegment | undefined;
  for (const base of [...bases].reverse()) {
    const path = `${directory}/${segmentName(base)}`;
    const bytes = await readWhole(fs, path);
    const header = decodeSegmentHeader(bytes, path);
    const scan = scanSegment(bytes, header, path, next === undefined || isEmpty(next));
    checkNeighbours(path, base, header, scan, next);
    goOn();
    next = { path, header, scan, lastFrame: bytes.slice(scan.lastFrameAt, scan.endBytes) };
    found.unshift(next);
  }
  return found;
};

const checkNeighbours = (
  file: string,
  base: bigint,
  header: SegmentHeader,
  scan: ScannedSegment,
  next: FoundSegment | undefined,
): void => {
  if (header.base !== base) {
    throw damaged({ file, offsetBytes: 24 }, `the segment starts at record ${header.base}; its name says ${base}`);
  }
  const end = { file, offsetBytes: scan.endBytes };
  if (next === undefined) {
    if (scan.sealed) throw damaged(end, `the segment after it, from record ${scan.end} on, is missing`);
    return;
  }
  if (!header.logId.every((byte, index) => next.header.logId[index] === byte)) {
    throw damaged({ file, offsetBytes: 8 }, `it belongs to another log than ${next.path}`);
  }
  if (scan.end !== next.header.base) {
    throw damaged(end, `it ends before record ${scan.end}; the next segment starts at ${next.header.base}`);
  }
  if (!scan.sealed && !isEmpty(next)) throw damaged(end, "it does not end as a full segment does");
};

const readCheckpoints = async (
  fs: LogFileSystem,
  directory: string,
  positions: readonly bigint[],
  logId: Uint8Array,
  start: bigint,
  last: FoundSegment,
  warnings: string[],
): Promise<readonly Checkpoint[]> => {
  const good: Checkpoint[] = [];
  let fault: LocalError | undefined;
  for (const position of positions) {
    const file = `${directory}/${checkpointName(position)}`;
    try {
      const checkpoint = decodeCheckpoint(await readWhole(fs, file), file, logId, position);
      if (position >= start) good.push(checkpoint);
    } catch (error) {
      fault = error as LocalError;
      warnings.push(`${fault.message}; an older state and the records since then are used`);
    }
  }
  const newest = good.at(-1);
  if (newest !== undefined && newest.position > last.scan.end) {
    const place = { file: last.path, offsetBytes: last.scan.endBytes };
    throw damaged(
      place,
      `the log ends before record ${last.scan.end}, but a checkpoint covers up to ${newest.position}`,
    );
  }
  if (newest === undefined && start > 0n) {
    throw (
      fault ??
      damaged({ file: directory, offsetBytes: 0 }, `records before ${start} and a checkpoint of them are missing`)
    );
  }
  return good;
};

/**
 * Cuts a torn end off, completes a seal that a crash prevented, and writes the last frame once more.
 *
 * The last frame may sit in the page cache only: after a failed fsync Linux marks pages clean that never reached the disk,
 * and a later fsync succeeds without writing them. Writing them again makes them dirty, so that the next fsync is true.
 *
 * @returns bytes up to the end of the last frame.
 */
const repair = async (fs: LogFileSystem, segment: FoundSegment, mustBeSealed: boolean): Promise<number> => {
  const { header, scan, lastFrame } = segment;
  const seal = mustBeSealed && !scan.sealed ? encodeFrame(frameSeed(header), "seal", scan.end, []) : new Uint8Array(0);
  const file = await fs.open(segment.path);
  try {
    if (scan.tornBytes > 0) await file.truncate(scan.endBytes);
    await writeAll(file, lastFrame, scan.lastFrameAt);
    await writeAll(file, seal, scan.endBytes);
    await file.sync();
  } finally {
    await file.close();
  }
  return scan.endBytes + seal.length;
};
