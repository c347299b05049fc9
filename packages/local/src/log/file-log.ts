import { aborted, invalid, LocalError } from "../errors.js";
import { AppendQueue } from "./append-queue.js";
import { checkpointName, encodeCheckpoint, positionOfCheckpointName } from "./checkpoint-file.js";
import type { Checkpoint, DurableLog, LogRecord, LogStatus } from "./durable-log.js";
import { type FileLogOptions, type LogLimits, logLimitsOf } from "./file-log-options.js";
import { type DirectoryLock, type LogFileSystem, readWhole, writeFileDurably } from "./file-system.js";
import { encodeFrame } from "./frame.js";
import { nodeFileSystem } from "./node-file-system.js";
import { type RecoveredLog, recoverLog, type Segment } from "./recovery.js";
import { encodeSegmentHeader, frameSeed, recordsOf, segmentName } from "./segment.js";
import { SegmentWriter } from "./segment-writer.js";

/**
 * A log in a directory of its own, open once at a time.
 *
 * It keeps the newest two checkpoints and the records since the older of them, so that one broken checkpoint costs nothing.
 */
export class FileLog implements DurableLog {
  readonly directory: string;
  readonly warnings: readonly string[];
  readonly #fs: LogFileSystem;
  readonly #lock: DirectoryLock;
  readonly #logId: Uint8Array;
  readonly #segments: Segment[];
  readonly #limits: LogLimits;
  #writer: SegmentWriter;
  #end: bigint;
  #checkpoints: readonly Checkpoint[];
  #tailBytes: number;
  readonly #queue: AppendQueue;
  #checkpointing: Promise<void> | undefined;
  #failure: LocalError | undefined;
  #closing: Promise<void> | undefined;

  private constructor(
    directory: string,
    fs: LogFileSystem,
    lock: DirectoryLock,
    recovered: RecoveredLog,
    writer: SegmentWriter,
    limits: LogLimits,
  ) {
    this.directory = directory;
    this.warnings = recovered.warnings;
    this.#fs = fs;
    this.#lock = lock;
    this.#logId = recovered.logId;
    this.#segments = recovered.segments;
    this.#end = recovered.end;
    this.#checkpoints = recovered.checkpoints;
    this.#writer = writer;
    this.#limits = limits;
    this.#queue = new AppendQueue(limits.maxBatchBytes, (records) => this.#store(records));
    this.#tailBytes = this.#segments.reduce(
      (sum, { base, endBytes }, index) =>
        this.#endOf(index) <= (this.checkpoint?.position ?? base) ? sum : sum + endBytes,
      0,
    );
  }

  /**
   * Opens the log in `directory`, and creates both if they are missing (its parent must exist).
   *
   * @throws {LocalError} `IN_USE`, `DAMAGED`, `UNSUPPORTED`, `INVALID_ARGUMENT`, `ABORTED`; `FAILED` when storage fails.
   */
  static async open(directory: string, options: FileLogOptions = {}): Promise<FileLog> {
    const limits = logLimitsOf(options);
    const { signal } = options;
    const fs = options.fileSystem ?? nodeFileSystem;
    let lock: DirectoryLock | undefined;
    try {
      await fs.makeDirectory(directory);
      lock = await fs.lockDirectory(directory);
      const recovered = await recoverLog(fs, directory, () => {
        if (signal?.aborted === true) throw aborted(signal, "nothing was opened");
      });
      const writer = await openWriter(fs, recovered.segments.at(-1) as Segment, limits);
      return new FileLog(directory, fs, lock, recovered, writer, limits);
    } catch (error) {
      lock?.release();
      throw LocalError.is(error) ? error : failed(`Opening the log in ${directory} failed`, error);
    }
  }

  get checkpoint(): Checkpoint | undefined {
    return this.#checkpoints.at(-1);
  }

  get maxRecordBytes(): number {
    return this.#limits.maxRecordBytes;
  }

  status(): LogStatus {
    return {
      start: (this.#segments[0] as Segment).base,
      end: this.#end,
      tailBytes: this.#tailBytes,
      checkpointPosition: this.checkpoint?.position,
      failure: this.#failure,
    };
  }

  append(record: Uint8Array): Promise<bigint> {
    const refusal = this.#refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    if (record.length > this.#limits.maxRecordBytes) {
      return Promise.reject(invalid("A record", `at most ${this.#limits.maxRecordBytes} bytes`, record));
    }
    return this.#queue.push(record);
  }

  async *read(from: bigint): AsyncGenerator<LogRecord, void, undefined> {
    const end = this.#end;
    const start = (this.#segments[0] as Segment).base;
    if (from < start) throw new LocalError("TOO_OLD", `Record ${from} is no longer kept; the oldest one is ${start}`);
    // As they are now: what is appended or dropped meanwhile does not concern this reader.
    const extents = this.#segments.map(({ path, base, endBytes }, index) => ({
      path,
      base,
      endBytes,
      end: this.#endOf(index),
    }));
    for (const segment of extents) {
      if (segment.end <= from) continue;
      for (const record of await this.#readSegment(segment)) {
        if (record.position >= end) return;
        if (record.position >= from) yield record;
      }
    }
  }

  writeCheckpoint(position: bigint, state: Uint8Array): Promise<void> {
    const refusal = this.#refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    const least = this.checkpoint?.position ?? 0n;
    if (position < least || position > this.#end || this.#checkpointing !== undefined) {
      const running = this.#checkpointing === undefined ? "" : ", with no other call running";
      return Promise.reject(invalid("A checkpoint's position", `in ${least}..${this.#end}${running}`, position));
    }
    this.#checkpointing = this.#storeCheckpoint(position, state).finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  close(): Promise<void> {
    this.#closing ??= this.#finish();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #refusal(): LocalError | undefined {
    if (this.#failure !== undefined) return this.#failure;
    return this.#closing === undefined ? undefined : new LocalError("CLOSED", `The log in ${this.directory} is closed`);
  }

  /** Position after the last record of the segment. */
  #endOf(index: number): bigint {
    return this.#segments[index + 1]?.base ?? this.#end;
  }

  async #store(records: readonly Uint8Array[]): Promise<bigint> {
    try {
      if (this.#active.endBytes >= this.#limits.segmentBytes) await this.#roll();
      await this.#writeFrame(encodeFrame(this.#seed, "records", this.#end, records));
    } catch (error) {
      throw this.#fail(error);
    }
    const first = this.#end;
    this.#end += BigInt(records.length);
    return first;
  }

  get #active(): Segment {
    return this.#segments.at(-1) as Segment;
  }

  get #seed(): number {
    return frameSeed({ logId: this.#logId, base: this.#active.base });
  }

  async #writeFrame(frame: Uint8Array): Promise<void> {
    const segment = this.#active;
    await this.#writer.write(frame, segment.endBytes);
    segment.endBytes += frame.length;
    this.#tailBytes += frame.length;
  }

  /**
   * Starts a new segment. Its name is durable before the old one is sealed, and nothing is written to it before the seal is
   * durable: so a sealed segment without a successor has lost it.
   */
  async #roll(): Promise<void> {
    const header = encodeSegmentHeader({ logId: this.#logId, base: this.#end });
    const name = segmentName(this.#end);
    const path = `${this.directory}/${name}`;
    await writeFileDurably(this.#fs, this.directory, name, header);
    await this.#writeFrame(encodeFrame(this.#seed, "seal", this.#end, []));
    const next = { path, base: this.#end, endBytes: header.length };
    const writer = await openWriter(this.#fs, next, this.#limits);
    const full = this.#writer;
    this.#writer = writer;
    this.#segments.push(next);
    await full.close();
  }

  async #storeCheckpoint(position: bigint, state: Uint8Array): Promise<void> {
    try {
      const name = checkpointName(position);
      const tailBefore = this.#tailBytes;
      await writeFileDurably(this.#fs, this.directory, name, encodeCheckpoint(this.#logId, position, state));
      const place = { file: `${this.directory}/${name}`, offsetBytes: 0 };
      const others = this.#checkpoints.filter((checkpoint) => checkpoint.position !== position);
      this.#checkpoints = [...others.slice(-1), { position, state, place }];
      this.#tailBytes -= tailBefore;
      await this.#dropOld();
    } catch (error) {
      throw this.#fail(error);
    }
  }

  /** Drops what no kept checkpoint needs. Only after the newest one is durable. */
  async #dropOld(): Promise<void> {
    const kept = this.#checkpoints.map(({ position }) => position);
    for (const name of await this.#fs.list(this.directory)) {
      const position = positionOfCheckpointName(name);
      if (position !== undefined && !kept.includes(position)) await this.#fs.remove(`${this.directory}/${name}`);
    }
    const oldest = kept[0];
    if (oldest === undefined || kept.length < 2) return;
    // One after the other, each removal durable before the next, so that a crash leaves no gap.
    while (this.#segments.length > 1 && this.#endOf(0) <= oldest) {
      const [segment] = this.#segments.splice(0, 1) as [Segment];
      await this.#fs.remove(segment.path);
      await this.#fs.syncDirectory(this.directory);
    }
  }

  async #readSegment({ path, base, endBytes }: Segment): Promise<Iterable<LogRecord>> {
    if (this.#closing !== undefined) throw new LocalError("CLOSED", `The log in ${this.directory} is closed`);
    try {
      return recordsOf(await readWhole(this.#fs, path), endBytes, { logId: this.#logId, base }, path);
    } catch (error) {
      if (this.#segments.some((kept) => kept.path === path)) throw failed(`Reading ${path} failed`, error);
      throw new LocalError("TOO_OLD", `The records from ${base} on were dropped while they were being read`, {
        cause: error,
      });
    }
  }

  #fail(cause: unknown): LocalError {
    this.#failure ??= failed(
      `The log in ${this.directory} failed and refuses everything until it is opened again`,
      cause,
    );
    this.#queue.refuse(this.#failure);
    return this.#failure;
  }

  async #finish(): Promise<void> {
    // A batch that runs takes what was queued before the close along; new calls are refused already.
    await this.#queue.idle();
    await this.#checkpointing?.catch(() => undefined);
    await this.#writer.close().catch(() => undefined);
    this.#lock.release();
  }
}

const openWriter = async (fs: LogFileSystem, { path }: Segment, limits: LogLimits): Promise<SegmentWriter> =>
  new SegmentWriter(await fs.openDurable(path), limits.aheadBytes, limits.segmentBytes);

const failed = (what: string, cause: unknown): LocalError =>
  new LocalError("FAILED", `${what}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
