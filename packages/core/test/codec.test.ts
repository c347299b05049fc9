import {
  ATTRIBUTES_HEADER,
  type Attributes,
  type CoordinationEntry,
  decodeEntry,
  encodeAttributes,
  encodeEntry,
  encodeUtf8,
  KrabkaError,
  type Lease,
  MAX_ATTRIBUTES_BYTES,
  MAX_INT64,
  MemberId,
  MIN_INT64,
  NO_ATTRIBUTES,
  type RawRecord,
  Role,
  TERM_HEADER,
} from "@krabka/core";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { attributes, id, int64, member, pair, role } from "./arbitraries.js";

const entry: fc.Arbitrary<CoordinationEntry> = fc.oneof(
  fc.record({ kind: fc.constant("registration" as const), role, member, registeredAtMs: int64, attributes }),
  fc.record({
    kind: fc.constant("lease" as const),
    role,
    member,
    pair,
    term: fc.option(id, { nil: undefined }),
    grantedAtMs: int64,
    deadlineMs: int64,
    attributes,
  }),
  fc.record({ kind: fc.constant("registration-removed" as const), role, member }),
  fc.record({ kind: fc.constant("lease-removed" as const), role }),
);

const lease: Lease = {
  kind: "lease",
  role: Role.of("controller"),
  member: MemberId.of("node-1"),
  pair: { producerId: 4242n, epoch: 7 },
  term: 40n,
  grantedAtMs: 1_700_000_000_000n,
  deadlineMs: 1_700_000_030_000n,
  attributes: NO_ATTRIBUTES,
};
const registration: CoordinationEntry = {
  kind: "registration",
  role: lease.role,
  member: lease.member,
  registeredAtMs: 1n,
  attributes: NO_ATTRIBUTES,
};

const withHeaders = (...headers: (readonly [key: string, value: string | Uint8Array])[]): RawRecord => ({
  ...encodeEntry({ ...lease, term: undefined }),
  headers: headers.map(([key, value]) => ({ key, value: typeof value === "string" ? encodeUtf8(value) : value })),
});

const invalid = (message: RegExp) =>
  expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringMatching(message) });
const malformed = (message: RegExp) =>
  expect.objectContaining({ code: "MALFORMED_RECORD", message: expect.stringMatching(message) });

/** Decodes, or gives undefined for a malformed record. Every other error fails the test. */
const decoded = (raw: RawRecord): CoordinationEntry | undefined => {
  try {
    return decodeEntry(raw);
  } catch (error) {
    if (KrabkaError.is(error) && error.code === "MALFORMED_RECORD") return undefined;
    throw error;
  }
};

describe("every entry", () => {
  it("comes back from its record as it was", () => {
    fc.assert(
      fc.property(entry, (given) => {
        expect(decodeEntry(encodeEntry(given))).toEqual(given);
      }),
      { numRuns: 2000 },
    );
  });

  it("is read alike from bytes that lie inside a larger buffer", () => {
    const embed = (bytes: Uint8Array | null) => {
      if (bytes === null) return null;
      const larger = new Uint8Array(bytes.length + 20).fill(0xff);
      larger.set(bytes, 7);
      return larger.subarray(7, 7 + bytes.length);
    };
    fc.assert(
      fc.property(entry, (given) => {
        const { key, value, headers } = encodeEntry(given);
        expect(decodeEntry({ key: embed(key), value: embed(value), headers })).toEqual(given);
      }),
    );
  });
});

describe("bytes from elsewhere", () => {
  const bytes = fc.uint8Array({ maxLength: 40 });
  const record = fc.record({
    key: fc.option(bytes),
    value: fc.option(bytes),
    headers: fc.array(fc.record({ key: fc.constantFrom(TERM_HEADER, ATTRIBUTES_HEADER, "other"), value: bytes }), {
      maxLength: 3,
    }),
  });
  /** A valid record with a few bytes changed, cut off or added: such bytes get further than random ones. */
  const damaged = fc
    .tuple(
      entry,
      fc.array(fc.tuple(fc.boolean(), fc.nat(), fc.nat(255)), { maxLength: 2 }),
      fc.integer({ min: -2, max: 2 }),
    )
    .map(([given, changes, growth]): RawRecord => {
      const raw = encodeEntry(given);
      const key = Uint8Array.from(raw.key ?? []);
      let value = raw.value && Uint8Array.from(raw.value);
      for (const [inKey, at, byte] of changes) {
        const target = inKey || value === null ? key : value;
        target[at % target.length] = byte;
      }
      if (value !== null && growth < 0) value = value.subarray(0, growth);
      if (value !== null && growth > 0) value = Uint8Array.from([...value, ...new Uint8Array(growth)]);
      return { key, value, headers: raw.headers };
    });

  it("decode or are malformed; nothing else is ever thrown", () => {
    fc.assert(
      fc.property(fc.oneof(record, damaged), (raw) => {
        decoded(raw);
      }),
      { numRuns: 20_000 },
    );
  });

  it("that decode are encoded to the same key and value again", () => {
    let valid = 0;
    fc.assert(
      fc.property(damaged, (raw) => {
        const given = decoded(raw);
        if (given === undefined) return;
        valid += 1;
        const again = encodeEntry(given);
        expect(again.key).toEqual(raw.key);
        expect(again.value).toEqual(raw.value);
      }),
      { numRuns: 10_000 },
    );
    expect(valid).toBeGreaterThan(100);
  });

  it("are malformed at every length but the right one", () => {
    for (const given of [lease, registration]) {
      const raw = encodeEntry(given);
      const { key, value } = raw as { key: Uint8Array; value: Uint8Array };
      for (let length = 0; length < key.length; length++) {
        expect(() => decodeEntry({ ...raw, key: key.subarray(0, length) })).toThrow(malformed(/^key/));
      }
      for (let length = 0; length < value.length; length++) {
        expect(() => decodeEntry({ ...raw, value: value.subarray(0, length) })).toThrow(malformed(/value/));
      }
    }
  });

  it("are malformed where a name's length is negative or over 249, and the length is named", () => {
    const key = (length: number) => Uint8Array.of(0, 0, 0, 1, (length >> 8) & 0xff, length & 0xff);
    for (const length of [-1, -2, -32768, 250, 32767]) {
      expect(() => decodeEntry({ key: key(length), value: null, headers: [] })).toThrow(
        malformed(new RegExp(`a name of ${length} bytes; 0 to 249`)),
      );
    }
  });

  it("are malformed without a key", () => {
    expect(() => decodeEntry({ key: null, value: null, headers: [] })).toThrow(malformed(/^key: null$/));
  });

  it("are malformed where a registration's value names another member than its key", () => {
    const other = encodeEntry({ ...registration, member: MemberId.of("node-2") } as CoordinationEntry);
    expect(() => decodeEntry({ ...encodeEntry(registration), value: other.value })).toThrow(malformed(/"node-2"/));
  });
});

describe("an entry that no reader would accept is not written", () => {
  const refused = (given: CoordinationEntry, part: object, message: RegExp) =>
    expect(() => encodeEntry({ ...given, ...part })).toThrow(invalid(message));

  it("for an epoch outside 0..32767 (A3)", () => {
    for (const epoch of [0, 32766, 32767]) {
      const given = { ...lease, pair: { producerId: 1n, epoch } };
      expect(decodeEntry(encodeEntry(given))).toEqual(given);
    }
    for (const epoch of [-1, 32768, 1.5, Number.NaN, "7"]) {
      refused(lease, { pair: { producerId: 1n, epoch } }, /epoch must be an integer in 0\.\.32767; got/);
    }
  });

  it("for 64-bit fields out of bounds or given as numbers", () => {
    refused(lease, { pair: { producerId: -1n, epoch: 0 } }, /producerId .* got -1n$/);
    refused(lease, { pair: { producerId: MAX_INT64 + 1n, epoch: 0 } }, /producerId/);
    refused(lease, { pair: { producerId: 1, epoch: 0 } }, /producerId .* got 1$/);
    for (const field of ["grantedAtMs", "deadlineMs"]) {
      refused(lease, { [field]: MAX_INT64 + 1n }, new RegExp(field));
      refused(lease, { [field]: MIN_INT64 - 1n }, new RegExp(field));
      refused(lease, { [field]: 5 }, new RegExp(field));
    }
    refused(registration, { registeredAtMs: MAX_INT64 + 1n }, /registeredAtMs/);
    refused(lease, { term: -1n }, /term .* got -1n$/);
    refused(lease, { term: MAX_INT64 + 1n }, /term/);
  });

  it("for names that were not checked", () => {
    for (const name of ["", "x".repeat(250), "\ud800"]) {
      for (const given of [lease, registration]) {
        refused(given, { role: name }, /A role is 1 to 249/);
        refused(given, { member: name }, /A member id is 1 to 249/);
      }
      refused({ kind: "lease-removed", role: lease.role }, { role: name }, /A role is/);
      refused({ ...registration, kind: "registration-removed" }, { member: name }, /A member id is/);
    }
  });
});

describe("the term header", () => {
  const termIn = (text: string | Uint8Array) => (decodeEntry(withHeaders([TERM_HEADER, text])) as Lease).term;

  it("is decimal text on every lease record but the grant", () => {
    expect(encodeEntry(lease).headers).toEqual([{ key: "krabka-term", value: encodeUtf8("40") }]);
    expect(encodeEntry({ ...lease, term: undefined }).headers).toEqual([]);
    expect(decodeEntry(withHeaders())).toEqual({ ...lease, term: undefined });
    expect(termIn("0")).toBe(0n);
    expect(termIn("9223372036854775807")).toBe(MAX_INT64);
  });

  it.each(["", "-1", "+1", "1.0", " 1", "1n", "0x10", "9223372036854775808", "00000000000000000001", "١"])(
    "is malformed as %j",
    (text) => {
      expect(() => termIn(text)).toThrow(malformed(/^header krabka-term/));
    },
  );

  it("is malformed when it is not UTF-8", () => {
    expect(() => termIn(Uint8Array.of(0xff))).toThrow(malformed(/UTF-8/));
  });

  it("counts in its last place where it is repeated, and not at all where its value is null", () => {
    expect(decodeEntry(withHeaders([TERM_HEADER, "1"], [TERM_HEADER, "2"]))).toMatchObject({ term: 2n });
    const nulled = [TERM_HEADER, ATTRIBUTES_HEADER].map((key) => ({ key, value: null as unknown as Uint8Array }));
    expect(decodeEntry({ ...withHeaders(), headers: nulled })).toEqual({ ...lease, term: undefined });
  });

  it("means nothing on a registration", () => {
    const raw = { ...encodeEntry(registration), headers: [{ key: TERM_HEADER, value: encodeUtf8("junk") }] };
    expect(decodeEntry(raw)).toEqual(registration);
  });
});

describe("attributes", () => {
  const attributesIn = (value: string | Uint8Array) =>
    (decodeEntry(withHeaders([ATTRIBUTES_HEADER, value])) as Lease).attributes;

  it("take up to 4 KiB as JSON, counted in bytes", () => {
    const frame = '{"a":""}'.length;
    const largest = { a: "x".repeat(MAX_ATTRIBUTES_BYTES - frame) };
    expect(encodeAttributes(largest)).toHaveLength(4096);
    expect(attributesIn(JSON.stringify(largest))).toEqual(largest);
    expect(() => encodeAttributes({ a: `${largest.a}x` })).toThrow(invalid(/at most 4096 bytes as JSON; got 4097/));
    expect(() => encodeAttributes({ a: "ä".repeat(2045) })).toThrow(invalid(/got 4098/));
  });

  it("have no header when there are none", () => {
    expect(encodeAttributes({})).toBeUndefined();
    expect(encodeAttributes(NO_ATTRIBUTES)).toBeUndefined();
  });

  it("are refused unless they are an object of strings", () => {
    for (const value of [1, 1n, true, null, undefined, {}, ["x"]]) {
      expect(() => encodeAttributes({ a: value } as unknown as Attributes)).toThrow(
        invalid(/Attribute "a" must be a string/),
      );
    }
    for (const given of [null, undefined, "text", ["a"], 7]) {
      expect(() => encodeAttributes(given as unknown as Attributes)).toThrow(invalid(/must be an object of strings/));
    }
  });

  it("are plain data: nothing in them is run or inherited", () => {
    const odd = JSON.parse('{"__proto__":"x","toJSON":"y","constructor":"z"}') as Attributes;
    const back = attributesIn(encodeAttributes(odd) as Uint8Array);
    expect(Object.entries(back)).toEqual(Object.entries(odd));
    expect(Object.isFrozen(back)).toBe(true);
    const inherited = Object.assign(Object.create({ toJSON: () => "hidden" }) as object, { a: "b" }) as Attributes;
    expect(attributesIn(encodeAttributes(inherited) as Uint8Array)).toEqual({ a: "b" });
  });

  it("that are none are ignored, so that they never hide a lease", () => {
    const tooLarge = JSON.stringify({ a: "x".repeat(4096) });
    for (const value of ["", "junk", "[]", "null", '"text"', "7", '{"a":1}', '{"a":"b","c":null}', "[".repeat(4096)]) {
      expect(attributesIn(value)).toBe(NO_ATTRIBUTES);
    }
    expect(attributesIn(tooLarge)).toBe(NO_ATTRIBUTES);
    expect(attributesIn(Uint8Array.of(0x7b, 0xff, 0x7d))).toBe(NO_ATTRIBUTES);
  });
});
