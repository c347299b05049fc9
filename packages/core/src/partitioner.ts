import { KrabkaError } from "./errors.js";
import type { Role } from "./names.js";
import type { OutgoingRecord } from "./transport.js";
import { encodeUtf8 } from "./utf8.js";

/** Partitions of the coordination topic unless configured otherwise. The count of a topic never changes. */
export const DEFAULT_PARTITIONS = 16;

/** Kafka's murmur2 (seed 0x9747b28c), as a signed 32-bit integer. */
export function murmur2(data: Uint8Array): number {
  const m = 0x5bd1e995;
  const length = data.length;
  let h = 0x9747b28c ^ length;
  const whole = length & ~3;
  for (let i = 0; i < whole; i += 4) {
    let k =
      (data[i] as number) |
      ((data[i + 1] as number) << 8) |
      ((data[i + 2] as number) << 16) |
      ((data[i + 3] as number) << 24);
    k = Math.imul(k, m);
    k ^= k >>> 24;
    h = Math.imul(h, m) ^ Math.imul(k, m);
  }
  const rest = length - whole;
  if (rest >= 3) h ^= (data[whole + 2] as number) << 16;
  if (rest >= 2) h ^= (data[whole + 1] as number) << 8;
  if (rest >= 1) h = Math.imul(h ^ (data[whole] as number), m);
  h = Math.imul(h ^ (h >>> 13), m);
  return h ^ (h >>> 15);
}

/** The partition Kafka's default partitioner gives a keyed record. */
export function partitionForKey(key: Uint8Array, partitions: number): number {
  if (!Number.isInteger(partitions) || partitions < 1) {
    throw new KrabkaError("INVALID_ARGUMENT", `A partition count is an integer >= 1; got ${partitions}`);
  }
  return (murmur2(key) & 0x7fffffff) % partitions;
}

/**
 * The partition that a record goes to: the one it names, else that of its key.
 *
 * @param turn Where it goes without either: turn modulo partitions.
 * @throws {KrabkaError} `INVALID_ARGUMENT`
 */
export function partitionForRecord(
  { topic, partition, key }: Pick<OutgoingRecord, "topic" | "partition" | "key">,
  partitions: number,
  turn: number,
): number {
  const chosen = partition ?? (key === null ? turn % partitions : partitionForKey(key, partitions));
  if (Number.isInteger(chosen) && chosen >= 0 && chosen < partitions) return chosen;
  throw new KrabkaError(
    "INVALID_ARGUMENT",
    `Topic ${JSON.stringify(topic)} has ${partitions} partitions; partition ${chosen} was given`,
  );
}

/** The partition of the coordination topic that holds everything about `role`. */
export const partitionForRole = (role: Role, partitions: number = DEFAULT_PARTITIONS): number =>
  partitionForKey(encodeUtf8(role), partitions);
