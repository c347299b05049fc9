import {
  type CoordinationEntry,
  encodeEntry,
  encodeUtf8,
  MemberId,
  NO_ATTRIBUTES,
  type RawRecord,
  Role,
} from "@krabka/core";
import { describe, expect, it } from "vitest";
import type { NativeMessage } from "../src/native-binding.js";
import { PartitionView, readEntry } from "../src/partition-view.js";

const role = Role.of("controller");

const message = (offset: number, { key, value, headers }: RawRecord): NativeMessage => ({
  partition: 0,
  offset,
  key,
  value,
  headers: headers.map((header) => ({ [header.key]: header.value })),
});

const member = (name: string): CoordinationEntry => ({
  kind: "registration",
  role,
  member: MemberId.of(name),
  registeredAtMs: 1n,
  attributes: { address: name },
});

const lease = (producerId: bigint, term?: bigint): CoordinationEntry => ({
  kind: "lease",
  role,
  member: MemberId.of("a"),
  pair: { producerId, epoch: 1 },
  term,
  grantedAtMs: 1n,
  deadlineMs: 2n,
  attributes: NO_ATTRIBUTES,
});

const viewOf = (...records: RawRecord[]): PartitionView => {
  const view = new PartitionView(0n);
  for (const [offset, record] of records.entries()) view.take(readEntry(message(offset, record)));
  return view;
};

describe("the view of a partition", () => {
  it("keeps the newest record of each key, in offset order, with its headers", () => {
    const view = viewOf(
      encodeEntry(member("a")),
      encodeEntry(lease(1n)),
      encodeEntry(member("b")),
      encodeEntry(lease(1n, 1n)),
      encodeEntry(member("a")),
    );
    const records = view.recordsOf(role);
    expect(records.map(({ offset }) => offset)).toEqual([2n, 3n, 4n]);
    expect(records[1]).toMatchObject({ kind: "lease", term: 1n });
    expect(records[2]).toMatchObject({ member: "a", attributes: { address: "a" } });
    expect(view.position).toBe(5n);
  });

  it("keeps a lease of each producer id, so that a late one hides no other", () => {
    const view = viewOf(encodeEntry(lease(1n)), encodeEntry(lease(2n)), encodeEntry(lease(1n, 0n)));
    expect(view.recordsOf(role).map(({ offset }) => offset)).toEqual([1n, 2n]);
    view.take(readEntry(message(3, encodeEntry({ kind: "lease-removed", role }))));
    expect(view.recordsOf(role).map(({ kind }) => kind)).toEqual(["lease-removed"]);
  });

  it("tells a malformed record to its role, and to all where it names none", () => {
    const broken = { ...encodeEntry(member("a")), value: new Uint8Array(0) };
    const stranger = { key: encodeUtf8("no key of ours"), value: null, headers: [] };
    const view = viewOf(broken, stranger, { key: null, value: null, headers: [] });
    expect(view.malformedFor(role).map(({ offset }) => offset)).toEqual([0n, 1n, 2n]);
    expect(view.malformedFor(Role.of("other")).map(({ offset }) => offset)).toEqual([1n, 2n]);
    expect(view.position).toBe(3n);
  });
});
