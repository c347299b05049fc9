import { type ByteReader, ByteWriter } from "../../state/binary.js";
import { BatchList, type StoredBatch } from "./batch-list.js";
import { Fences } from "./fences.js";
import { decodeRecord, encodeRecord, keyTextOf, roleIn } from "./record-bytes.js";
import type { Section } from "./state-snapshot.js";

/** A record with its place, still encoded. */
export interface StoredRecord {
  readonly offset: bigint;
  /** The log's own clock when the record was appended. */
  readonly atMs: number;
  readonly bytes: Uint8Array;
}

/** Part of a partition, as a reader gets it. */
export interface Slice {
  readonly records: readonly StoredRecord[];
  /** Where to read on. */
  readonly next: bigint;
}

export interface Retention {
  /** Of a partition that is not compacted, the oldest records go beyond this many bytes of memory. */
  readonly bytesPerPartition: number;
  readonly recordsPerPartition: number;
  /** How long a tombstone stays in a compacted partition. */
  readonly tombstoneMs: number;
}

/** Tombstones beyond these go before their time: whoever has not read them by then starts over. */
const MAX_TOMBSTONES = 1000;
/** A compacted partition is cleaned once this many records, and as many as are live, came since. */
const LEAST_DIRTY = 1000;

/**
 * One partition: records with offsets that never repeat, and the fences of its producers.
 *
 * Appends are decided before they are durable; `visibleEnd` is where readers stop. Only what they may see is cleaned up, so
 * that a record never gives way to one which a crash could still take back.
 */
export class PartitionLog {
  readonly compacted: boolean;
  fences = new Fences();
  #batches = new BatchList();
  #start = 0n;
  #end = 0n;
  #visibleEnd = 0n;
  /** Below it a tombstone is gone that nothing replaced: a reader that stopped before it must start over. */
  #forgottenBelow = 0n;
  #cleanAt = LEAST_DIRTY;

  constructor(compacted: boolean) {
    this.compacted = compacted;
  }

  get start(): bigint {
    return this.#start;
  }

  /** Offset of the next record. */
  get end(): bigint {
    return this.#end;
  }

  get visibleEnd(): bigint {
    return this.#visibleEnd;
  }

  /** Of all records. */
  get bytes(): number {
    return this.#batches.bytes;
  }

  get memoryBytes(): number {
    return this.#batches.memoryBytes;
  }

  /** @returns the first record's offset */
  append(records: readonly Uint8Array[], atMs: number): bigint {
    const base = this.#end;
    const groups = this.compacted ? records.map((record) => [record]) : [records];
    for (const group of groups) this.#push({ base: this.#end, count: group.length, atMs, bytes: joined(group) });
    return base;
  }

  /** Shows readers what is before `end`. */
  publish(end: bigint): void {
    if (end > this.#visibleEnd) this.#visibleEnd = end;
  }

  /** Removes whatever is there about these roles, by tombstones. @returns whether there was anything */
  removeRoles(roles: ReadonlySet<string>, atMs: number): boolean {
    const live = new Map<string, Uint8Array>();
    for (const { bytes } of this.#batches) {
      const stored = bytes.subarray(LENGTH_BYTES);
      const role = roleIn(stored);
      if (role === undefined || !roles.has(Buffer.from(role).toString())) continue;
      const record = decodeRecord(stored);
      const name = keyTextOf(record) ?? "";
      if (record.key === null || record.value === null) live.delete(name);
      else live.set(name, record.key);
    }
    // By name, since the order of the records differs between a replay and a partition that was compacted.
    const tombstones = [...live]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, key]) => encodeRecord({ key, value: null, headers: [], timestampMs: atMs }));
    this.append(tombstones, atMs);
    return tombstones.length > 0;
  }

  /** Leaves out so many offsets. */
  skip(count: bigint): void {
    this.#end += count;
  }

  /** Drops everything. Offsets go on. */
  deleteAll(): void {
    this.#batches = new BatchList();
    this.#start = this.#end;
    if (this.compacted) this.#forgottenBelow = this.#end;
  }

  /** Grows with what compaction forgets. */
  get forgottenBelow(): bigint {
    return this.#forgottenBelow;
  }

  /**
   * Whether somebody who has read everything before `from` would miss something by reading on from there.
   *
   * @param forgotten `forgottenBelow` as it was when they began at the start: what was forgotten by then they never saw.
   */
  hasGapAt(from: bigint, forgotten = 0n): boolean {
    // All was deleted, which is not on the disk yet: reading goes on at the end as it will be.
    if (from > this.#visibleEnd) return from > this.#start;
    if (!this.compacted) return from < this.#start;
    return from > 0n && from < this.#forgottenBelow && forgotten < this.#forgottenBelow;
  }

  /** Visible records from `from` on that `wanted` takes, of about `maxBytes`, and at least one if there is any. */
  read(from: bigint, maxBytes: number, wanted: (bytes: Uint8Array) => boolean = () => true): Slice {
    const records: StoredRecord[] = [];
    let size = 0;
    let next = from > this.#start ? from : this.#start;
    for (let index = this.#batches.find(next); index < this.#batches.length; index++) {
      const { base, count, atMs, bytes } = this.#batches.at(index) as StoredBatch;
      if (base >= this.#visibleEnd) break;
      let offset = base;
      for (const record of split(bytes)) {
        if (offset >= next && wanted(record)) {
          if (size > 0 && size + record.length > maxBytes) return { records, next: offset };
          records.push({ offset, atMs, bytes: record });
          size += record.length;
        }
        offset += 1n;
      }
      next = base + BigInt(count);
    }
    return { records, next: next > this.#visibleEnd ? next : this.#visibleEnd };
  }

  /** Drops what the retention no longer covers. */
  clean(retention: Retention, nowMs: number): void {
    if (this.compacted) {
      if (this.#batches.length >= this.#cleanAt) this.#compact(nowMs - retention.tombstoneMs);
      return;
    }
    const { bytesPerPartition, recordsPerPartition } = retention;
    while (this.memoryBytes > bytesPerPartition || this.#batches.records > recordsPerPartition) {
      if (!this.dropOldest()) return;
    }
  }

  /** Drops the oldest batch, unless it is the only one or not visible yet. @returns whether it did */
  dropOldest(): boolean {
    const oldest = this.#batches.at(0);
    if (this.compacted || oldest === undefined || this.#batches.length < 2 || !this.#isVisible(oldest)) return false;
    this.#batches.dropFirst();
    this.#start = oldest.base + BigInt(oldest.count);
    return true;
  }

  snapshot(): readonly Section[] {
    const head = new ByteWriter().int64(this.#start).int64(this.#end).int64(this.#forgottenBelow);
    this.fences.encode(head);
    return [head.uint32(this.#batches.length).finish(), [...this.#batches]];
  }

  /** @throws {Error} where it makes no sense */
  static decode(reader: ByteReader, compacted: boolean): PartitionLog {
    const log = new PartitionLog(compacted);
    log.#start = reader.int64();
    const end = reader.int64();
    log.#forgottenBelow = reader.int64();
    log.fences = Fences.decode(reader);
    for (let left = reader.uint32(); left > 0; left--) {
      const base = reader.int64();
      const batch = { base, count: reader.uint32(), atMs: Number(reader.int64()), bytes: reader.bytes() };
      if (base < log.#end || base < log.#start)
        throw new Error(`a batch starts at offset ${base}, inside an earlier one`);
      log.#push(batch);
    }
    if (end < log.#end || end < log.#start) throw new Error(`a partition ends at ${end}, before its last record`);
    log.#end = end;
    log.#visibleEnd = end;
    if (compacted) log.#cleanAt = LEAST_DIRTY + 2 * log.#batches.length;
    return log;
  }

  #push(batch: StoredBatch): void {
    this.#batches.push(batch);
    this.#end = batch.base + BigInt(batch.count);
  }

  #isVisible({ base, count }: StoredBatch): boolean {
    return base + BigInt(count) <= this.#visibleEnd;
  }

  /** Keeps the newest record of each key, at its offset. */
  #compact(tombstonesBeforeMs: number): void {
    const newest = new Set<string>();
    const kept: StoredBatch[] = [];
    let tombstones = 0;
    for (const batch of [...this.#batches].reverse()) {
      let keeps = true;
      if (this.#isVisible(batch)) {
        const record = decodeRecord(batch.bytes.subarray(LENGTH_BYTES));
        const key = keyTextOf(record) ?? "";
        keeps = !newest.has(key);
        newest.add(key);
        if (keeps && record.value === null) {
          keeps = batch.atMs >= tombstonesBeforeMs && tombstones < MAX_TOMBSTONES;
          tombstones += 1;
          if (!keeps && batch.base >= this.#forgottenBelow) this.#forgottenBelow = batch.base + 1n;
        }
      }
      if (keeps) kept.push(batch);
    }
    this.#batches = new BatchList(kept.reverse());
    this.#cleanAt = LEAST_DIRTY + 2 * kept.length;
  }
}

const LENGTH_BYTES = 4;

const joined = (records: readonly Uint8Array[]): Uint8Array => {
  const bytes = new Uint8Array(records.reduce((sum, { length }) => sum + LENGTH_BYTES + length, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const record of records) {
    view.setUint32(at, record.length);
    bytes.set(record, at + LENGTH_BYTES);
    at += LENGTH_BYTES + record.length;
  }
  return bytes;
};

function* split(bytes: Uint8Array): Generator<Uint8Array, void, void> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.length; ) {
    const end = at + LENGTH_BYTES + view.getUint32(at);
    yield bytes.subarray(at + LENGTH_BYTES, end);
    at = end;
  }
}
