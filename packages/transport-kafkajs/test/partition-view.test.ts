import { type CoordinationRecord, encodeEntry, MemberId, NO_ATTRIBUTES, type RawRecord, Role } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { PartitionView } from "../src/partition-view.js";
import type { BatchContent, FetchedBatch } from "../src/wire/record-batch.js";

const ROLE = Role.of("controller");

const registration = (member: string): RawRecord =>
  encodeEntry({
    kind: "registration",
    role: ROLE,
    member: MemberId.of(member),
    registeredAtMs: 1n,
    attributes: NO_ATTRIBUTES,
  });

const removal = (member: string): RawRecord =>
  encodeEntry({ kind: "registration-removed", role: ROLE, member: MemberId.of(member) });

const lease = (producerId: bigint, member = "a"): RawRecord =>
  encodeEntry({
    kind: "lease",
    role: ROLE,
    member: MemberId.of(member),
    pair: { producerId, epoch: 0 },
    term: undefined,
    grantedAtMs: 1n,
    deadlineMs: 2n,
    attributes: NO_ATTRIBUTES,
  });

const batch = (baseOffset: bigint, content: BatchContent, parts: Partial<FetchedBatch> = {}): FetchedBatch => ({
  baseOffset,
  lastOffset: baseOffset,
  leaderEpoch: 0,
  producerId: -1n,
  transactional: false,
  stampedByLog: false,
  content,
  ...parts,
});

const plain = (offset: bigint, record: RawRecord, parts: Partial<FetchedBatch> = {}): FetchedBatch =>
  batch(offset, { kind: "records", records: [{ ...record, offset, timestampMs: 5 }] }, parts);

const inTransaction = (offset: bigint, producerId: bigint, record: RawRecord): FetchedBatch =>
  plain(offset, record, { producerId, transactional: true });

const marker = (offset: bigint, producerId: bigint, committed: boolean): FetchedBatch =>
  batch(offset, { kind: "marker", committed }, { producerId, transactional: true });

const offsets = (records: readonly CoordinationRecord[]): bigint[] => records.map(({ offset }) => offset);

describe("partition view", () => {
  it("holds the records of an open transaction until its commit marker", () => {
    const view = new PartitionView();
    const before = view.applyLive([inTransaction(0n, 7n, registration("a")), plain(1n, registration("b"))]);
    expect([offsets(before.committed), offsets(before.uncommitted)]).toEqual([[1n], [0n]]);
    const after = view.applyLive([marker(2n, 7n, true)]);
    expect(offsets(after.committed)).toEqual([0n]);
    expect(offsets(view.recordsOf(ROLE))).toEqual([0n, 1n]);
  });

  it("drops the records of a transaction on its abort marker", () => {
    const view = new PartitionView();
    view.applyLive([inTransaction(0n, 7n, registration("a"))]);
    expect(offsets(view.uncommittedOf(ROLE))).toEqual([0n]);
    expect(view.applyLive([marker(1n, 7n, false)]).committed).toEqual([]);
    expect(view.uncommittedOf(ROLE)).toEqual([]);
    expect(view.recordsOf(ROLE)).toEqual([]);
  });

  it("ends one transaction and leaves the other open", () => {
    const view = new PartitionView();
    view.applyLive([inTransaction(0n, 7n, registration("a")), inTransaction(1n, 8n, registration("b"))]);
    expect(offsets(view.applyLive([marker(2n, 8n, true)]).committed)).toEqual([1n]);
    expect(offsets(view.uncommittedOf(ROLE))).toEqual([0n]);
  });

  it("does not report as uncommitted what the same answer decides", () => {
    const { committed, uncommitted } = new PartitionView().applyLive([
      inTransaction(0n, 7n, registration("a")),
      marker(1n, 7n, true),
    ]);
    expect([offsets(committed), offsets(uncommitted)]).toEqual([[0n], []]);
  });

  it("keeps committed transactions whose markers were cleaned away, and drops those that the broker lists", () => {
    const view = new PartitionView();
    const { committed } = view.applyDecided(
      [
        inTransaction(0n, 7n, registration("kept")),
        inTransaction(4n, 8n, registration("aborted")),
        marker(5n, 8n, false),
        inTransaction(6n, 8n, registration("kept-too")),
      ],
      [{ producerId: 8n, firstOffset: 4n }],
    );
    expect(offsets(committed)).toEqual([0n, 6n]);
    expect(view.position).toBe(7n);
  });

  it("says that a marker was missed once the log has decided what is still held", () => {
    const view = new PartitionView();
    view.applyLive([inTransaction(3n, 7n, registration("a")), plain(4n, registration("b"))]);
    expect(view.missedMarker(3n)).toBe(false);
    expect(view.missedMarker(5n)).toBe(true);
    expect(view.missedMarker(6n)).toBe(false);
  });

  it("takes the next offset from the batch, not from its last surviving record (D5)", () => {
    const view = new PartitionView();
    view.applyDecided([plain(0n, registration("a"), { lastOffset: 41n })], []);
    expect(view.position).toBe(42n);
  });

  it("skips the part of a batch that was read before", () => {
    const view = new PartitionView();
    view.applyLive([plain(0n, registration("a"))]);
    expect(view.applyLive([plain(0n, registration("a"))]).committed).toEqual([]);
  });

  it("reports a record that does not decode by its offset and reads on", () => {
    const broken: RawRecord = { key: Buffer.from("x"), value: null, headers: [] };
    const { committed, malformed } = new PartitionView().applyLive([plain(0n, broken), plain(1n, registration("a"))]);
    expect(malformed.map(({ offset }) => offset)).toEqual([0n]);
    expect(offsets(committed)).toEqual([1n]);
  });

  it("forgets a member at its tombstone", () => {
    const view = new PartitionView();
    view.applyLive([plain(0n, registration("a")), plain(1n, removal("a"))]);
    expect(view.recordsOf(ROLE)).toEqual([]);
  });

  it("does not bring a member back that a transaction registered before its tombstone", () => {
    const view = new PartitionView();
    view.applyLive([inTransaction(0n, 7n, registration("a")), plain(1n, removal("a")), marker(2n, 7n, true)]);
    expect(view.recordsOf(ROLE).map(({ kind }) => kind)).not.toContain("registration");
  });

  it("keeps the leases of two producer ids, so that a zombie's record hides no leader", () => {
    const view = new PartitionView();
    view.applyLive([plain(0n, lease(1n)), plain(1n, lease(2n)), plain(2n, lease(2n)), plain(3n, lease(1n))]);
    expect(offsets(view.recordsOf(ROLE))).toEqual([2n, 3n]);
  });

  it("gives the log's own time only where the topic stamps records", () => {
    const view = new PartitionView();
    const { committed } = view.applyLive([
      plain(0n, registration("a"), { stampedByLog: true }),
      plain(1n, registration("b")),
    ]);
    expect(committed.map(({ appendedAtMs }) => appendedAtMs)).toEqual([5, undefined]);
  });
});
