import { readFileSync } from "node:fs";
import {
  type CoordinationEntry,
  decodeEntry,
  encodeEntry,
  encodeUtf8,
  KrabkaError,
  MemberId,
  murmur2,
  NO_ATTRIBUTES,
  partitionForRole,
  Role,
} from "@krabka/core";
import { describe, expect, it } from "vitest";

interface Golden {
  readonly records: readonly {
    readonly name: string;
    readonly role: string;
    readonly member: string;
    readonly registeredAtMs?: string;
    readonly producerId?: string;
    readonly producerEpoch?: number;
    readonly grantedAtMs?: string;
    readonly deadlineMs?: string;
    readonly key: string;
    readonly value: string;
  }[];
  readonly murmur2: readonly { readonly text: string; readonly hash: number }[];
  readonly partitions: readonly { readonly role: string; readonly partitions: number; readonly partition: number }[];
  readonly malformedKeys: readonly { readonly why: string; readonly hex: string }[];
  readonly malformedValues: readonly {
    readonly kind: "registration" | "lease";
    readonly why: string;
    readonly hex: string;
  }[];
}

const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8")) as Golden;

const bytes = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (data: Uint8Array | null): string | null => data && Buffer.from(data).toString("hex");

const entryOf = (vector: Golden["records"][number]): CoordinationEntry => {
  const names = { role: Role.of(vector.role), member: MemberId.of(vector.member), attributes: NO_ATTRIBUTES };
  if (vector.registeredAtMs !== undefined) {
    return { kind: "registration", ...names, registeredAtMs: BigInt(vector.registeredAtMs) };
  }
  const { producerId, producerEpoch, grantedAtMs, deadlineMs } = vector as Required<typeof vector>;
  return {
    kind: "lease",
    ...names,
    pair: { producerId: BigInt(producerId), epoch: producerEpoch },
    term: undefined,
    grantedAtMs: BigInt(grantedAtMs),
    deadlineMs: BigInt(deadlineMs),
  };
};

const codeOf = (action: () => unknown): string => {
  try {
    return `returned ${JSON.stringify(action(), (_, value) => (typeof value === "bigint" ? `${value}n` : value))}`;
  } catch (error) {
    return KrabkaError.is(error) ? error.code : `threw ${String(error)}`;
  }
};

describe("the frozen vectors", () => {
  it("hold something of every kind", () => {
    expect(golden.records.length).toBeGreaterThanOrEqual(5);
    expect(golden.murmur2.length).toBeGreaterThanOrEqual(10);
    expect(golden.partitions.length).toBeGreaterThanOrEqual(21);
    expect(golden.malformedKeys.length).toBeGreaterThanOrEqual(12);
    expect(golden.malformedValues.length).toBeGreaterThanOrEqual(9);
  });

  it.each(golden.records)("encode and decode: $name", (vector) => {
    const entry = entryOf(vector);
    const encoded = encodeEntry(entry);
    expect(hex(encoded.key)).toBe(vector.key);
    expect(hex(encoded.value)).toBe(vector.value);
    expect(encoded.headers).toEqual([]);
    expect(decodeEntry({ key: bytes(vector.key), value: bytes(vector.value), headers: [] })).toEqual(entry);
  });

  it.each(golden.records)("a null value under the same key is a removal: $name", (vector) => {
    const { kind, role, member } = entryOf(vector) as Extract<CoordinationEntry, { member: MemberId }>;
    const removal: CoordinationEntry =
      (kind as string) === "lease" ? { kind: "lease-removed", role } : { kind: "registration-removed", role, member };
    expect(decodeEntry({ key: bytes(vector.key), value: null, headers: [] })).toEqual(removal);
    expect(hex(encodeEntry(removal).key)).toBe(vector.key);
    expect(encodeEntry(removal).value).toBeNull();
  });

  it.each(golden.records)("an empty value is no tombstone: $name", (vector) => {
    expect(codeOf(() => decodeEntry({ key: bytes(vector.key), value: new Uint8Array(), headers: [] }))).toBe(
      "MALFORMED_RECORD",
    );
  });

  it.each(golden.murmur2)("murmur2 of $text is $hash", ({ text, hash }) => {
    expect(murmur2(encodeUtf8(text))).toBe(hash);
  });

  it.each(golden.partitions)("role $role of $partitions partitions lies in $partition", (vector) => {
    expect(partitionForRole(Role.of(vector.role), vector.partitions)).toBe(vector.partition);
  });

  it.each(golden.malformedKeys)("a key is refused: $why", (vector) => {
    for (const value of [null, bytes("000000066e6f64652d310000018bcfe56800")]) {
      expect(codeOf(() => decodeEntry({ key: bytes(vector.hex), value, headers: [] }))).toBe("MALFORMED_RECORD");
    }
  });

  const keys = {
    registration: bytes("00000000000a636f6e74726f6c6c657200066e6f64652d31"),
    lease: bytes("00000001000a636f6e74726f6c6c65720000"),
  };

  it.each(golden.malformedValues)("a $kind value is refused: $why", (vector) => {
    expect(codeOf(() => decodeEntry({ key: keys[vector.kind], value: bytes(vector.hex), headers: [] }))).toBe(
      "MALFORMED_RECORD",
    );
  });
});
