import { readInt16, readInt64, writeInt16, writeInt64 } from "./big-endian.js";
import { KrabkaError } from "./errors.js";
import { MAX_EPOCH, MAX_INT64, MIN_INT64 } from "./fencing-token.js";
import { MAX_NAME_BYTES, type MemberId, nameBytes, type Role } from "./names.js";
import { type Attributes, type CoordinationEntry, type Header, NO_ATTRIBUTES, type RawRecord } from "./record.js";
import { showValue } from "./show-value.js";
import { decodeUtf8, encodeUtf8, writeUtf8 } from "./utf8.js";

// The frozen wire format of the coordination topic, version 0: big-endian, signed, string = int16 length + UTF-8.
// Other implementations abort a whole partition on anything else, so additions go into record headers only.

const VERSION = 0;
const KIND_REGISTRATION = 0;
const KIND_LEASE = 1;

/** Header with the term as decimal text; on every lease record but the grant. */
export const TERM_HEADER = "krabka-term";
/** Header with a small JSON object of strings, on registrations and leases. */
export const ATTRIBUTES_HEADER = "krabka-attributes";
/** Largest value of the attributes header. */
export const MAX_ATTRIBUTES_BYTES = 4096;

const writeName = (bytes: Uint8Array, at: number, name: string, length: number): number => {
  writeInt16(bytes, at, length);
  return writeUtf8(bytes, at + 2, name);
};

const encodeKey = (kind: number, role: string, member: string): Uint8Array => {
  const roleLength = nameBytes("role", role);
  const memberLength = kind === KIND_LEASE ? 0 : nameBytes("member id", member);
  const bytes = new Uint8Array(8 + roleLength + memberLength);
  bytes[3] = kind;
  writeName(bytes, writeName(bytes, 4, role, roleLength), member, memberLength);
  return bytes;
};

const int64 = (what: string, value: bigint, least = MIN_INT64): bigint => {
  if (typeof value !== "bigint" || value < least || value > MAX_INT64) {
    throw new KrabkaError("INVALID_ARGUMENT", `${what} must be a bigint in ${least}..2^63-1; got ${showValue(value)}`);
  }
  return value;
};

const encodeRegistration = (member: string, registeredAtMs: bigint): Uint8Array => {
  const length = nameBytes("member id", member);
  const bytes = new Uint8Array(12 + length);
  const at = writeName(bytes, 2, member, length);
  writeInt64(bytes, at, int64("registeredAtMs", registeredAtMs));
  return bytes;
};

const encodeLease = (lease: Extract<CoordinationEntry, { kind: "lease" }>): Uint8Array => {
  const { producerId, epoch } = lease.pair;
  if (!Number.isInteger(epoch) || epoch < 0 || epoch > MAX_EPOCH) {
    throw new KrabkaError("INVALID_ARGUMENT", `epoch must be an integer in 0..32767; got ${showValue(epoch)}`);
  }
  const length = nameBytes("member id", lease.member);
  const bytes = new Uint8Array(30 + length);
  const at = writeName(bytes, 2, lease.member, length);
  writeInt64(bytes, at, int64("producerId", producerId, 0n));
  writeInt16(bytes, at + 8, epoch);
  writeInt64(bytes, at + 10, int64("grantedAtMs", lease.grantedAtMs));
  writeInt64(bytes, at + 18, int64("deadlineMs", lease.deadlineMs));
  return bytes;
};

/**
 * Checks attributes and gives their wire form, or undefined for none.
 *
 * @throws {KrabkaError} `INVALID_ARGUMENT` unless it is an object of strings of at most 4 KiB as JSON.
 */
export function encodeAttributes(attributes: Attributes): Uint8Array | undefined {
  if (typeof attributes !== "object" || attributes === null || Array.isArray(attributes)) {
    throw new KrabkaError("INVALID_ARGUMENT", `Attributes must be an object of strings; got ${showValue(attributes)}`);
  }
  const entries = Object.entries(attributes);
  if (entries.length === 0) return undefined;
  for (const [name, value] of entries) {
    if (typeof value !== "string") {
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `Attribute ${JSON.stringify(name)} must be a string; got ${showValue(value)}`,
      );
    }
  }
  const bytes = encodeUtf8(JSON.stringify(Object.fromEntries(entries)));
  if (bytes.length > MAX_ATTRIBUTES_BYTES) {
    throw new KrabkaError(
      "INVALID_ARGUMENT",
      `Attributes take at most ${MAX_ATTRIBUTES_BYTES} bytes as JSON; got ${bytes.length}`,
    );
  }
  return bytes;
}

const headersOf = (attributes: Attributes, term: bigint | undefined): readonly Header[] => {
  const headers: Header[] = [];
  if (term !== undefined) headers.push({ key: TERM_HEADER, value: encodeUtf8(String(int64("term", term, 0n))) });
  const encoded = encodeAttributes(attributes);
  if (encoded !== undefined) headers.push({ key: ATTRIBUTES_HEADER, value: encoded });
  return headers;
};

/** @throws {KrabkaError} `INVALID_ARGUMENT` for what a reader would refuse: names, numbers or attributes out of bounds. */
export function encodeEntry(entry: CoordinationEntry): RawRecord {
  switch (entry.kind) {
    case "registration":
      return {
        key: encodeKey(KIND_REGISTRATION, entry.role, entry.member),
        value: encodeRegistration(entry.member, entry.registeredAtMs),
        headers: headersOf(entry.attributes, undefined),
      };
    case "lease":
      return {
        key: encodeKey(KIND_LEASE, entry.role, ""),
        value: encodeLease(entry),
        headers: headersOf(entry.attributes, entry.term),
      };
    case "registration-removed":
      return { key: encodeKey(KIND_REGISTRATION, entry.role, entry.member), value: null, headers: [] };
    case "lease-removed":
      return { key: encodeKey(KIND_LEASE, entry.role, ""), value: null, headers: [] };
  }
}

const malformed = (what: string): KrabkaError => new KrabkaError("MALFORMED_RECORD", what);

/** Reads one field after another and refuses to read past the end. */
class Cursor {
  at = 0;
  readonly #bytes: Uint8Array;
  readonly #what: string;

  constructor(what: string, bytes: Uint8Array) {
    this.#what = what;
    this.#bytes = bytes;
  }

  #take(size: number): number {
    const at = this.at;
    if (at + size > this.#bytes.length) {
      throw malformed(`${this.#what}: ${this.#bytes.length} bytes end inside a field that starts at byte ${at}`);
    }
    this.at = at + size;
    return at;
  }

  int16(): number {
    return readInt16(this.#bytes, this.#take(2));
  }

  int64(): bigint {
    return readInt64(this.#bytes, this.#take(8));
  }

  string(): string {
    const length = this.int16();
    if (length < 0 || length > MAX_NAME_BYTES) {
      throw malformed(`${this.#what}: a name of ${length} bytes; 0 to ${MAX_NAME_BYTES} are allowed`);
    }
    const start = this.#take(length);
    return decodeUtf8(this.#bytes, start, start + length);
  }

  version(): void {
    const version = this.int16();
    if (version !== VERSION) throw malformed(`${this.#what}: version ${version}; this implementation reads version 0`);
  }

  end(): void {
    const rest = this.#bytes.length - this.at;
    if (rest !== 0) throw malformed(`${this.#what}: ${rest} bytes too many`);
  }
}

const nonEmpty = (what: string, name: string): string => {
  if (name === "") throw malformed(`${what} is empty`);
  return name;
};

interface DecodedKey {
  readonly kind: "registration" | "lease";
  readonly role: Role;
  readonly member: string;
}

const decodeKey = (bytes: Uint8Array): DecodedKey => {
  const cursor = new Cursor("key", bytes);
  cursor.version();
  const kind = cursor.int16();
  if (kind !== KIND_REGISTRATION && kind !== KIND_LEASE) throw malformed(`key: unknown kind ${kind}`);
  const role = nonEmpty("key: role", cursor.string()) as Role;
  const member = cursor.string();
  cursor.end();
  if (kind === KIND_LEASE) {
    if (member !== "") throw malformed(`key: a lease key names no member; got ${JSON.stringify(member)}`);
    return { kind: "lease", role, member };
  }
  return { kind: "registration", role, member: nonEmpty("key: member", member) };
};

/** Whom a record concerns that does not decode: the role that its key names, or undefined for bytes that are no key. */
export const roleOfKey = (key: Uint8Array | null): string | undefined => {
  if (key === null || key.length < 6) return undefined;
  const end = 6 + ((key[4] as number) << 8) + (key[5] as number);
  try {
    return end <= key.length ? decodeUtf8(key, 6, end) : undefined;
  } catch {
    return undefined;
  }
};

const headerNamed = (headers: readonly Header[], key: string): Uint8Array | undefined => {
  // Kafka allows repeated header keys; the last one wins, as in its own lastHeader().
  // It also allows a null value, which a transport may hand through as it came.
  for (let i = headers.length - 1; i >= 0; i--) if (headers[i]?.key === key) return headers[i]?.value ?? undefined;
  return undefined;
};

const decodeTerm = (headers: readonly Header[]): bigint | undefined => {
  const bytes = headerNamed(headers, TERM_HEADER);
  if (bytes === undefined) return undefined;
  const text = decodeUtf8(bytes);
  const term = /^\d{1,19}$/.test(text) ? BigInt(text) : -1n;
  if (term < 0n || term > MAX_INT64) {
    throw malformed(`header ${TERM_HEADER}: decimal digits in 0..2^63-1 are wanted; got ${JSON.stringify(text)}`);
  }
  return term;
};

/** Attributes are a courtesy: bytes that are none are ignored, so they never hide a lease. */
const decodeAttributes = (headers: readonly Header[]): Attributes => {
  const bytes = headerNamed(headers, ATTRIBUTES_HEADER);
  if (bytes === undefined || bytes.length > MAX_ATTRIBUTES_BYTES) return NO_ATTRIBUTES;
  try {
    const parsed: unknown = JSON.parse(decodeUtf8(bytes));
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return NO_ATTRIBUTES;
    if (!Object.values(parsed).every((value) => typeof value === "string")) return NO_ATTRIBUTES;
    return Object.freeze(parsed as Record<string, string>);
  } catch {
    return NO_ATTRIBUTES;
  }
};

/**
 * Decodes one record of the coordination topic.
 *
 * @throws {KrabkaError} `MALFORMED_RECORD`; a reader skips such a record and reports it once per offset.
 */
export function decodeEntry(record: RawRecord): CoordinationEntry {
  if (record.key === null) throw malformed("key: null");
  const { kind, role, member } = decodeKey(record.key);
  if (record.value === null) {
    return kind === "lease"
      ? { kind: "lease-removed", role }
      : { kind: "registration-removed", role, member: member as MemberId };
  }
  const cursor = new Cursor(`${kind} value`, record.value);
  cursor.version();
  const named = nonEmpty(`${kind} value: member`, cursor.string()) as MemberId;
  if (kind === "registration") {
    const registeredAtMs = cursor.int64();
    cursor.end();
    if (named !== member) {
      throw malformed(`registration value names ${JSON.stringify(named)}, its key ${JSON.stringify(member)}`);
    }
    return { kind, role, member: named, registeredAtMs, attributes: decodeAttributes(record.headers) };
  }
  const producerId = cursor.int64();
  const epoch = cursor.int16();
  const grantedAtMs = cursor.int64();
  const deadlineMs = cursor.int64();
  cursor.end();
  if (producerId < 0n) throw malformed(`lease value: negative producer id ${producerId}`);
  if (epoch < 0) throw malformed(`lease value: negative epoch ${epoch}`);
  return {
    kind,
    role,
    member: named,
    pair: { producerId, epoch },
    term: decodeTerm(record.headers),
    grantedAtMs,
    deadlineMs,
    attributes: decodeAttributes(record.headers),
  };
}
