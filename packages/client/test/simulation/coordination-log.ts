import { type CoordinationRecord, decodeEntry, type ReadRecord } from "@krabka/core";

/** The records of a coordination partition, decoded. */
export const recordsOf = (log: readonly ReadRecord[]): readonly CoordinationRecord[] =>
  log.map((record) => ({ ...decodeEntry(record), offset: record.offset }));
