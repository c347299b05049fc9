import { encodeUtf8, type Header, KrabkaError, type OutgoingRecord } from "@krabka/core";

/** A record of the caller's own. Strings are written as UTF-8. */
export interface WriteRecord {
  readonly topic: string;
  readonly key?: string | Uint8Array | null | undefined;
  /** `null` writes a tombstone. */
  readonly value: string | Uint8Array | null;
  readonly headers?: Readonly<Record<string, string | Uint8Array>> | undefined;
  /** @default where Kafka's default partitioner puts the key */
  readonly partition?: number | undefined;
}

const isBytesLike = (value: unknown): value is string | Uint8Array =>
  typeof value === "string" || value instanceof Uint8Array;

const bytes = (value: string | Uint8Array): Uint8Array =>
  typeof value === "string" ? encodeUtf8(value) : Uint8Array.from(value);

const invalid = (what: string, wanted: string, given: unknown): KrabkaError =>
  new KrabkaError("INVALID_ARGUMENT", `${what} must be ${wanted}; got ${given === null ? "null" : typeof given}`);

/**
 * Checks a record and copies it into bytes, before anything is sent.
 *
 * @throws {KrabkaError} `INVALID_ARGUMENT`
 */
export function toOutgoing(record: WriteRecord, coordinationTopic: string): OutgoingRecord {
  const { topic, key = null, value, headers = {}, partition } = record;
  if (typeof topic !== "string" || topic === "") throw invalid("topic", "a non-empty string", topic);
  if (topic === coordinationTopic) {
    throw new KrabkaError("INVALID_ARGUMENT", `${topic} is the coordination topic; guarded writes go to other topics`);
  }
  if (key !== null && !isBytesLike(key)) throw invalid("key", "a string, bytes or null", key);
  if (value !== null && !isBytesLike(value)) throw invalid("value", "a string, bytes or null", value);
  if (partition !== undefined && !(Number.isInteger(partition) && partition >= 0)) {
    throw new KrabkaError("INVALID_ARGUMENT", `partition must be an integer >= 0; got ${String(partition)}`);
  }
  const own = Object.entries(headers).map(([name, content]): Header => {
    if (!isBytesLike(content)) throw invalid(`header ${JSON.stringify(name)}`, "a string or bytes", content);
    return { key: name, value: bytes(content) };
  });
  return {
    topic,
    key: key === null ? null : bytes(key),
    value: value === null ? null : bytes(value),
    headers: own,
    partition,
  };
}
