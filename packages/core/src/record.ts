import type { ProducerPair } from "./fencing-token.js";
import type { MemberId, Role } from "./names.js";

/** Free-form facts about a member, such as the address at which it is reached. At most 4 KiB as JSON. */
export type Attributes = Readonly<Record<string, string>>;

export const NO_ATTRIBUTES: Attributes = Object.freeze({});

/** A member's entry in the roster. Its offset is the join sequence. */
export interface Registration {
  readonly kind: "registration";
  readonly role: Role;
  readonly member: MemberId;
  /** The member's wall clock, ms since 1970 (int64). */
  readonly registeredAtMs: bigint;
  readonly attributes: Attributes;
}

/** A grant, renewal, release or transfer: who holds the role under which pair, and until when. */
export interface Lease {
  readonly kind: "lease";
  readonly role: Role;
  readonly member: MemberId;
  readonly pair: ProducerPair;
  /** The leader's term, or undefined on a grant, whose own offset becomes the term. */
  readonly term: bigint | undefined;
  /** The holder's wall clock when it wrote this record, ms since 1970 (int64). */
  readonly grantedAtMs: bigint;
  /** The lease is live while now < deadline, on the holder's wall clock, ms since 1970 (int64). */
  readonly deadlineMs: bigint;
  readonly attributes: Attributes;
}

/** A null value under a registration's key: the member left, or missed its turn. */
export interface RegistrationRemoved {
  readonly kind: "registration-removed";
  readonly role: Role;
  readonly member: MemberId;
}

/** A null value under a role's lease key. No member writes it; the embedded broker does when it forgets a role, other tools may. */
export interface LeaseRemoved {
  readonly kind: "lease-removed";
  readonly role: Role;
}

/** What one record of the coordination topic says. */
export type CoordinationEntry = Registration | Lease | RegistrationRemoved | LeaseRemoved;

/** An entry with its place in the role's partition. */
export type CoordinationRecord = CoordinationEntry & {
  readonly offset: bigint;
  /**
   * The log's own clock when the record was appended, ms since 1970; undefined where the topic does not stamp records
   * itself (`message.timestamp.type=LogAppendTime`).
   */
  readonly appendedAtMs?: number | undefined;
};

/** A record header. */
export interface Header {
  readonly key: string;
  readonly value: Uint8Array;
}

/** A record as bytes, without its place. `value: null` is a tombstone. */
export interface RawRecord {
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly Header[];
}
