/** The pair of a lease record, and the record's offset. */
export interface LeasePosition {
  readonly producerId: bigint;
  readonly epoch: number;
  readonly offset: bigint;
}

/** How many records the program decoded, by what they are. */
export interface DecodedRecords {
  readonly registrations: number;
  readonly registrationTombstones: number;
  readonly leases: number;
  readonly leaseTombstones: number;
}

/**
 * What the program tells, in the order in which it happens.
 *
 * - `follows`: it read a lease record that names another member.
 * - `refused`: Kafka refused a transaction; `exception` is the class of the Java client.
 * - `lost`: it was leading and is no more; it stays out until it is told to compete.
 */
export type ForeignEvent =
  | { readonly event: "registered"; readonly offset: bigint }
  | ({ readonly event: "leading" } & LeasePosition)
  | ({ readonly event: "renewed" } & LeasePosition)
  | ({ readonly event: "resigned" } & LeasePosition)
  | { readonly event: "written"; readonly topic: string; readonly offset: bigint }
  | { readonly event: "refused"; readonly during: string; readonly exception: string }
  | { readonly event: "lost"; readonly why: string }
  | ({ readonly event: "follows"; readonly member: string } & LeasePosition)
  | { readonly event: "silent" }
  | ({ readonly event: "report" } & DecodedRecords);

const BIG = new Set(["offset", "producerId"]);
const NOTHING_DECODED = { registrations: 0, registrationTombstones: 0, leases: 0, leaseTombstones: 0 };

/** Parses one line of the program's output, in which 64-bit integers are strings. */
export const parseEvent = (line: string): ForeignEvent => {
  const event = JSON.parse(line, (key, value) => (BIG.has(key) ? BigInt(value) : value));
  return event.event === "report" ? { ...NOTHING_DECODED, ...event } : event;
};
