import { type CoordinationRecord, decodeEntry, type Header, type Role, roleOfKey, stateKeyOf } from "@krabka/core";
import type { NativeMessage } from "./native-binding.js";

/** One record as read: what it says, or why it says nothing. */
export type ReadEntry =
  | { readonly offset: bigint; readonly role: string; readonly record: CoordinationRecord }
  | { readonly offset: bigint; readonly role: string | undefined; readonly error: Error };

/** A record that does not decode. Without a role, since its key does not decode either, it concerns everybody. */
export type MalformedEntry = Extract<ReadEntry, { readonly error: Error }>;

/** So that a topic of another kind does not fill the memory. */
const MALFORMED_KEPT = 1_000;

/** node-rdkafka has each header as an object with one property. */
const headersOf = (message: NativeMessage): readonly Header[] =>
  (message.headers ?? []).flatMap((header) => Object.entries(header).map(([key, value]) => ({ key, value })));

/** Decodes a record of the coordination topic. node-rdkafka does not tell whose clock a timestamp is, so none is taken. */
export const readEntry = (message: NativeMessage): ReadEntry => {
  const offset = BigInt(message.offset);
  try {
    const entry = decodeEntry({ key: message.key, value: message.value, headers: headersOf(message) });
    return { offset, role: entry.role, record: { ...entry, offset } };
  } catch (error) {
    return { offset, role: roleOfKey(message.key), error: error as Error };
  }
};

/** One partition as read so far: the newest record of each key, for followers that come later. */
export class PartitionView {
  /** The next offset to read. */
  position: bigint;
  readonly #roles = new Map<Role, Map<string, CoordinationRecord>>();
  readonly #malformed: MalformedEntry[] = [];

  constructor(position: bigint) {
    this.position = position;
  }

  take(entry: ReadEntry): void {
    this.position = entry.offset + 1n;
    if ("record" in entry) this.#keep(entry.record);
    else if (this.#malformed.length < MALFORMED_KEPT) this.#malformed.push(entry);
  }

  /** The newest records of a role, in offset order. */
  recordsOf(role: Role): CoordinationRecord[] {
    const records = [...(this.#roles.get(role)?.values() ?? [])];
    return records.sort((a, b) => (a.offset < b.offset ? -1 : 1));
  }

  /** Records that do not decode and are not known to be another role's. */
  malformedFor(role: Role): readonly MalformedEntry[] {
    return this.#malformed.filter((entry) => entry.role === undefined || entry.role === role);
  }

  #keep(record: CoordinationRecord): void {
    let records = this.#roles.get(record.role);
    if (records === undefined) {
      records = new Map();
      this.#roles.set(record.role, records);
    }
    if (record.kind === "lease-removed") {
      for (const [key, { kind }] of records) if (kind === "lease") records.delete(key);
    }
    records.set(stateKeyOf(record), record);
  }
}
