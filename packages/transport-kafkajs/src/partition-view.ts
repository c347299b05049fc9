import { type CoordinationRecord, decodeEntry, type Role, stateKeyOf } from "@krabka/core";
import type { FetchedBatch, FetchedRecord } from "./wire/record-batch.js";

export interface Malformed {
  readonly offset: bigint;
  readonly error: Error;
}

/** What one answer added, in the order in which it became definite. */
export interface Applied {
  readonly committed: CoordinationRecord[];
  readonly uncommitted: CoordinationRecord[];
  readonly malformed: Malformed[];
}

/** An aborted transaction that overlaps an answer to a committed read. */
export interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: bigint;
}

/**
 * One partition of the coordination topic as read so far: the newest record of each key, and what open transactions hold.
 *
 * Below the last stable offset every transaction is decided, and the broker lists the aborted ones: `applyDecided`. From
 * there on markers decide: `applyLive`. A replay by markers alone would be wrong, since cleaning removes the markers of old
 * transactions.
 */
export class PartitionView {
  /** The next offset to read. It comes from the batches, since the last records of one may have been cleaned away. */
  position = 0n;
  /** Leader epoch of the last batch, or -1. */
  lastEpoch = -1;
  readonly #roles = new Map<Role, Map<string, CoordinationRecord>>();
  readonly #open = new Map<bigint, { readonly firstOffset: bigint; readonly records: CoordinationRecord[] }>();

  /** The newest committed records of a role, in offset order. */
  recordsOf(role: Role): CoordinationRecord[] {
    return byOffset([...(this.#roles.get(role)?.values() ?? [])]);
  }

  /** Records of a role in transactions that are still open. */
  uncommittedOf(role: Role): CoordinationRecord[] {
    const held: CoordinationRecord[] = [];
    for (const { records } of this.#open.values()) held.push(...records.filter((record) => record.role === role));
    return byOffset(held);
  }

  /** Applies what a committed read gave: everything in it is decided. */
  applyDecided(batches: readonly FetchedBatch[], aborted: readonly AbortedTransaction[]): Applied {
    const applied: Applied = { committed: [], uncommitted: [], malformed: [] };
    const upcoming = [...aborted].sort((a, b) => (a.firstOffset < b.firstOffset ? -1 : 1));
    const dropping = new Set<bigint>();
    for (const batch of batches) {
      while (upcoming[0] !== undefined && upcoming[0].firstOffset <= batch.lastOffset) {
        dropping.add(upcoming[0].producerId);
        upcoming.shift();
      }
      if (batch.content.kind === "marker" && !batch.content.committed) dropping.delete(batch.producerId);
      const dropped = batch.transactional && dropping.has(batch.producerId);
      for (const record of dropped ? [] : this.#decode(batch, applied)) this.#keep(record, applied);
      this.#pass(batch);
    }
    return applied;
  }

  /** Applies what was read from the last stable offset on: records of open transactions are held until their marker. */
  applyLive(batches: readonly FetchedBatch[]): Applied {
    const applied: Applied = { committed: [], uncommitted: [], malformed: [] };
    const added: CoordinationRecord[] = [];
    for (const batch of batches) {
      if (batch.content.kind === "marker") this.#decide(batch.producerId, batch.content.committed, applied);
      const records = this.#decode(batch, applied);
      if (!batch.transactional) for (const record of records) this.#keep(record, applied);
      else if (batch.content.kind !== "marker") {
        this.#hold(batch, records);
        added.push(...records);
      }
      this.#pass(batch);
    }
    const open = new Set([...this.#open.values()].flatMap(({ records }) => records));
    applied.uncommitted.push(...added.filter((record) => open.has(record)));
    return applied;
  }

  /** A transaction is held although it is decided: its marker was cleaned away before it was read. */
  missedMarker(lastStableOffset: bigint): boolean {
    if (this.position < lastStableOffset) return false;
    for (const { firstOffset } of this.#open.values()) if (firstOffset < lastStableOffset) return true;
    return false;
  }

  #decode(batch: FetchedBatch, applied: Applied): CoordinationRecord[] {
    const { content } = batch;
    if (content.kind === "malformed" && batch.lastOffset >= this.position) {
      applied.malformed.push({ offset: batch.baseOffset, error: content.error });
    }
    if (content.kind !== "records") return [];
    const records: CoordinationRecord[] = [];
    for (const record of content.records) {
      // A fetch from the middle of a batch gives the whole batch.
      if (record.offset < this.position) continue;
      try {
        records.push(decodeRecord(record, batch.stampedByLog));
      } catch (error) {
        applied.malformed.push({ offset: record.offset, error: error as Error });
      }
    }
    return records;
  }

  #hold(batch: FetchedBatch, records: readonly CoordinationRecord[]): void {
    const held = this.#open.get(batch.producerId);
    if (held === undefined) this.#open.set(batch.producerId, { firstOffset: batch.baseOffset, records: [...records] });
    else held.records.push(...records);
  }

  #decide(producerId: bigint, commit: boolean, applied: Applied): void {
    const held = this.#open.get(producerId);
    this.#open.delete(producerId);
    if (commit) for (const record of held?.records ?? []) this.#keep(record, applied);
  }

  #keep(record: CoordinationRecord, applied: Applied): void {
    applied.committed.push(record);
    let records = this.#roles.get(record.role);
    if (records === undefined) {
      records = new Map();
      this.#roles.set(record.role, records);
    }
    const key = stateKeyOf(record);
    const known = records.get(key);
    if (known !== undefined && known.offset > record.offset) return;
    if (record.kind === "lease-removed") {
      for (const [other, entry] of records) {
        if (entry.kind === "lease" && entry.offset < record.offset) records.delete(other);
      }
    }
    const isTombstone = record.kind === "lease-removed" || record.kind === "registration-removed";
    // While a transaction is open, a record from before the tombstone may still become definite after it.
    if (isTombstone && this.#open.size === 0) records.delete(key);
    else records.set(key, record);
    if (records.size === 0) this.#roles.delete(record.role);
  }

  #pass(batch: FetchedBatch): void {
    if (batch.lastOffset >= this.position) this.position = batch.lastOffset + 1n;
    if (batch.leaderEpoch >= 0) this.lastEpoch = batch.leaderEpoch;
  }
}

const decodeRecord = (record: FetchedRecord, stampedByLog: boolean): CoordinationRecord =>
  // The decoded entry is this record's own; copying it would double the time of a replay.
  Object.assign(decodeEntry(record), {
    offset: record.offset,
    appendedAtMs: stampedByLog ? record.timestampMs : undefined,
  });

const byOffset = (records: CoordinationRecord[]): CoordinationRecord[] =>
  records.sort((a, b) => (a.offset < b.offset ? -1 : a.offset > b.offset ? 1 : 0));

/** Records in offset order, by role. */
export const groupByRole = (records: readonly CoordinationRecord[]): Map<Role, CoordinationRecord[]> => {
  const groups = new Map<Role, CoordinationRecord[]>();
  for (const record of records) {
    const group = groups.get(record.role);
    if (group === undefined) groups.set(record.role, [record]);
    else group.push(record);
  }
  for (const group of groups.values()) byOffset(group);
  return groups;
};
