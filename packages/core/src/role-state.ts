import { FencingToken, type ProducerPair } from "./fencing-token.js";
import type { MemberId, Role } from "./names.js";
import type { Attributes, CoordinationRecord } from "./record.js";

/** A member of the roster, in join order. */
export interface RosterEntry {
  readonly member: MemberId;
  /** Offset of the registration: the join sequence. */
  readonly joinOffset: bigint;
  readonly registeredAtMs: bigint;
  readonly attributes: Attributes;
}

/** Who holds the role as far as the log tells, live or not. Never an answer to "who may write": the broker gives that. */
export interface HeldLease {
  readonly member: MemberId;
  readonly token: FencingToken;
  readonly grantedAtMs: bigint;
  readonly deadlineMs: bigint;
  readonly attributes: Attributes;
  /** Offset of the record that says so. */
  readonly offset: bigint;
  readonly appendedAtMs: number | undefined;
}

type LeaseRecord = Extract<CoordinationRecord, { kind: "lease" }>;

/**
 * All that is remembered of one producer id: the newest epoch, what its records say of their term, and the newest of them.
 *
 * The term is the highest that a record states. Where none does, as in a grant and with other implementations, it is the
 * offset of the pair's first record.
 */
interface Reign {
  readonly pair: ProducerPair;
  readonly statedTerm: bigint | undefined;
  readonly firstOffset: bigint;
  readonly record: LeaseRecord;
}

interface Entry {
  readonly offset: bigint;
  readonly entry: RosterEntry | undefined;
}

/**
 * What the committed records of one role add up to. Immutable.
 *
 * Arrival order does not matter and folding in steps equals folding all at once: per key the highest offset wins and a
 * tombstone is remembered with its offset. Leases are kept per producer id. Within one id the coordinator counts epochs
 * upwards, so a lower one is a zombie's; between ids the term decides.
 */
export class RoleState {
  readonly role: Role;
  /** Registered members in join order. */
  readonly roster: readonly RosterEntry[];
  readonly lease: HeldLease | undefined;
  readonly #members: ReadonlyMap<MemberId, Entry>;
  readonly #reigns: ReadonlyMap<bigint, Reign>;
  readonly #leaseRemovedAt: bigint;

  private constructor(
    role: Role,
    roster: readonly RosterEntry[],
    members: ReadonlyMap<MemberId, Entry>,
    reigns: ReadonlyMap<bigint, Reign>,
    leaseRemovedAt: bigint,
  ) {
    this.role = role;
    this.roster = roster;
    this.#members = members;
    this.#reigns = reigns;
    this.#leaseRemovedAt = leaseRemovedAt;
    this.lease = leaseOf(reigns, leaseRemovedAt);
  }

  static empty(role: Role): RoleState {
    return new RoleState(role, [], new Map(), new Map(), -1n);
  }

  /** Folds committed records; those of other roles are ignored. */
  static fold(role: Role, records: Iterable<CoordinationRecord>): RoleState {
    return RoleState.empty(role).fold(records);
  }

  /** This state with more committed records folded in; the same object when they change nothing. */
  fold(records: Iterable<CoordinationRecord>): RoleState {
    let members: Map<MemberId, Entry> | undefined;
    let reigns: Map<bigint, Reign> | undefined;
    let leaseRemovedAt = this.#leaseRemovedAt;
    for (const record of records) {
      if (record.role !== this.role) continue;
      switch (record.kind) {
        case "registration":
        case "registration-removed": {
          const known = (members ?? this.#members).get(record.member);
          if (known !== undefined && known.offset >= record.offset) break;
          members ??= new Map(this.#members);
          members.set(record.member, { offset: record.offset, entry: rosterEntryOf(record) });
          break;
        }
        case "lease": {
          const known = (reigns ?? this.#reigns).get(record.pair.producerId);
          const reign = reignAfter(known, record);
          if (reign === known) break;
          reigns ??= new Map(this.#reigns);
          reigns.set(record.pair.producerId, reign);
          break;
        }
        case "lease-removed":
          if (record.offset > leaseRemovedAt) leaseRemovedAt = record.offset;
          break;
      }
    }
    if (members === undefined && reigns === undefined && leaseRemovedAt === this.#leaseRemovedAt) return this;
    return new RoleState(
      this.role,
      members === undefined ? this.roster : rosterOf(members),
      members ?? this.#members,
      reigns ?? this.#reigns,
      leaseRemovedAt,
    );
  }

  /**
   * Place in the order of succession: 0 for the holder that the lease names, also after expiry; for everyone else the
   * index in the roster without the holder; undefined for a member that is neither.
   */
  rankOf(member: MemberId): number | undefined {
    const holder = this.lease?.member;
    if (member === holder) return 0;
    let rank = 0;
    for (const entry of this.roster) {
      if (entry.member === member) return rank;
      if (entry.member !== holder) rank += 1;
    }
    return undefined;
  }

  /** The roster entry of `member`, if it is registered. */
  registrationOf(member: MemberId): RosterEntry | undefined {
    return this.#members.get(member)?.entry;
  }
}

/**
 * Of a role's records with the same key only the newest matters to its state. Leases are kept by producer id, since a state
 * tells reigns apart by it: a zombie's record must not hide the leader's.
 */
export const stateKeyOf = (record: CoordinationRecord): string => {
  switch (record.kind) {
    case "registration":
    case "registration-removed":
      return `r ${record.member}`;
    case "lease":
      return `l ${record.pair.producerId}`;
    case "lease-removed":
      return "l";
  }
};

const rosterEntryOf = (
  record: Extract<CoordinationRecord, { kind: "registration" | "registration-removed" }>,
): RosterEntry | undefined =>
  record.kind === "registration"
    ? {
        member: record.member,
        joinOffset: record.offset,
        registeredAtMs: record.registeredAtMs,
        attributes: record.attributes,
      }
    : undefined;

/** A term is the offset of an earlier record. One ahead of its own record is left from a topic that was created anew. */
const statedTermOf = ({ term, offset }: LeaseRecord): bigint | undefined =>
  term !== undefined && term < offset ? term : undefined;

const reignAfter = (known: Reign | undefined, record: LeaseRecord): Reign => {
  const { pair, offset } = record;
  const statedTerm = statedTermOf(record);
  if (known === undefined || pair.epoch > known.pair.epoch) return { pair, statedTerm, firstOffset: offset, record };
  if (pair.epoch < known.pair.epoch) return known;
  const isNewest = offset > known.record.offset;
  const isFirst = offset < known.firstOffset;
  const isHigher = statedTerm !== undefined && (known.statedTerm === undefined || statedTerm > known.statedTerm);
  if (!isNewest && !isFirst && !isHigher) return known;
  return {
    pair,
    statedTerm: isHigher ? statedTerm : known.statedTerm,
    firstOffset: isFirst ? offset : known.firstOffset,
    record: isNewest ? record : known.record,
  };
};

const termOf = ({ statedTerm, firstOffset }: Reign): bigint => statedTerm ?? firstOffset;

const rosterOf = (members: ReadonlyMap<MemberId, Entry>): readonly RosterEntry[] => {
  const roster: RosterEntry[] = [];
  for (const { entry } of members.values()) if (entry !== undefined) roster.push(entry);
  return roster.sort((a, b) => (a.joinOffset < b.joinOffset ? -1 : a.joinOffset > b.joinOffset ? 1 : 0));
};

const leaseOf = (reigns: ReadonlyMap<bigint, Reign>, leaseRemovedAt: bigint): HeldLease | undefined => {
  let latest: Reign | undefined;
  let term = -1n;
  for (const reign of reigns.values()) {
    const its = termOf(reign);
    if (latest === undefined || its > term || (its === term && reign.record.offset > latest.record.offset)) {
      latest = reign;
      term = its;
    }
  }
  // A tombstone removes the latest reign's lease; it does not bring back an older reign that wrote after it.
  if (latest === undefined || latest.record.offset <= leaseRemovedAt) return undefined;
  const { record, pair } = latest;
  return {
    member: record.member,
    token: FencingToken.of({ term, ...pair }),
    grantedAtMs: record.grantedAtMs,
    deadlineMs: record.deadlineMs,
    attributes: record.attributes,
    offset: record.offset,
    appendedAtMs: record.appendedAtMs,
  };
};
