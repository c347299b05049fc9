import type { Place } from "../errors.js";

/** A record as it was stored. Positions are dense: the next record has the next one. */
export interface LogRecord {
  readonly position: bigint;
  readonly bytes: Uint8Array;
  readonly place: Place;
}

/** State that covers every record before `position`. */
export interface Checkpoint {
  readonly position: bigint;
  readonly state: Uint8Array;
  readonly place: Place;
}

/** What operators may know about a log. */
export interface LogStatus {
  /** Position of the oldest record that is kept. */
  readonly start: bigint;
  /** Position after the newest durable record. */
  readonly end: bigint;
  /** Bytes of records after the newest checkpoint: what an opening replays. */
  readonly tailBytes: number;
  readonly checkpointPosition: bigint | undefined;
  /** Why the log refuses everything until it is opened again. */
  readonly failure: Error | undefined;
}

/**
 * A log that the host owns: it opens it, hands it to one service, keeps it available for the life of that service and closes it.
 *
 * A record is opaque, and all or nothing. It is durable before `append` resolves. After any failure of storage the log
 * refuses everything until it is opened again, since neither memory nor a second fsync tells what reached the disk.
 */
export interface DurableLog {
  /** The newest good checkpoint that was found at opening or written since. */
  readonly checkpoint: Checkpoint | undefined;
  /** What was found at opening that an operator should know, as sentences. */
  readonly warnings: readonly string[];
  /** The largest record that `append` takes. */
  readonly maxRecordBytes: number;
  status(): LogStatus;

  /**
   * Durable records from `from` on, oldest first, up to the end as it was when the call was made.
   *
   * @throws {LocalError} `TOO_OLD` when records from there on are no longer kept; `DAMAGED`, `CLOSED`
   */
  read(from: bigint): AsyncIterable<LogRecord>;

  /**
   * Appends one record and resolves with its position once it is durable. Records get their positions in the order of the
   * calls; calls that come while the disk works share the next fsync. The bytes must not change until it settles.
   *
   * @throws {LocalError} `INVALID_ARGUMENT` for a record that is too large; `FAILED`: the record may or may not be there
   * after the next opening; `CLOSED`: it was not taken.
   */
  append(record: Uint8Array): Promise<bigint>;

  /**
   * Stores a state that covers every durable record before `position`, and then drops what neither this checkpoint nor
   * the one before it needs. Appends go on meanwhile. One call at a time.
   *
   * @throws {LocalError} `FAILED` or `CLOSED`; the older checkpoint and the records since then are untouched.
   */
  writeCheckpoint(position: bigint, state: Uint8Array): Promise<void>;

  /** Waits for what was appended, then frees the files and the directory. Idempotent; never rejects. */
  close(): Promise<void>;
}
