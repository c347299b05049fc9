import { type CoordinationRecord, type Lease, MemberId, NO_ATTRIBUTES, type ProducerPair, Role } from "@krabka/core";
import fc from "fast-check";

export const ROLE = Role.of("controller");
export const MEMBERS = ["a", "b", "c", "d"].map((name) => MemberId.of(name));

/** What a person who watched every step would say about the role. */
export interface Truth {
  /** Registered members with the offset of their registration, in join order. */
  readonly roster: readonly (readonly [member: MemberId, joinOffset: bigint])[];
  readonly lease:
    | { readonly member: MemberId; readonly token: string; readonly deadlineMs: bigint; readonly offset: bigint }
    | undefined;
}

export interface History {
  readonly records: readonly CoordinationRecord[];
  readonly truth: Truth;
  /** Offset of the last record of the lease's key, and whether it is what the truth rests on. */
  readonly lastLeaseIsTrue: boolean;
}

interface Session {
  readonly member: MemberId;
  readonly pair: ProducerPair;
  /** Other implementations write no term header. */
  readonly foreign: boolean;
  term: bigint | undefined;
}

const PICK = fc.nat(1000);
const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("register" as const), pick: PICK }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("leave" as const), pick: PICK }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("mint" as const), pick: PICK, foreign: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("rotate" as const), pick: PICK }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("grant" as const), pick: PICK }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("renew" as const), pick: PICK }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("overtake" as const), pick: PICK }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("remove-lease" as const), pick: PICK }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("other-role" as const), pick: PICK }) },
);

/**
 * Plays random steps against a coordinator that mints and a partition that fences by producer id, and writes down the log
 * and the truth. The truth is kept by the player, not derived from the records: it knows who was granted last.
 *
 * - A grant is written by a session whose pair the coordinator still names. A stale one, by a session of a left id that
 *   was slow, may slip in after the leader's; then the leader takes a new epoch of its own pair and grants anew.
 * - Any session that was ever granted may renew at any time, however late; the partition accepts it unless it has seen a
 *   newer epoch of that id. So zombies of a left id stay able to write.
 * - A rotation leaves for an id that was never used and may be lower, since ids come in blocks per broker.
 */
export const history = (options: { readonly foreign: boolean; readonly removals: boolean }): fc.Arbitrary<History> =>
  fc.array(step, { minLength: 1, maxLength: 60 }).map((steps) => {
    const records: CoordinationRecord[] = [];
    const roster = new Map<MemberId, bigint>();
    const sessions: Session[] = [];
    const newestSeen = new Map<bigint, number>();
    const ids = [2000n, 1013n, 3001n, 17n, 2n ** 53n + 1n, 9n, 2n ** 53n, 40n, 12n, 7n, 5n, 3n];
    let current: ProducerPair = { producerId: ids.shift() as bigint, epoch: -1 };
    let leader: Session | undefined;
    let lease: Truth["lease"];
    let lastLeaseIsTrue = false;
    let nextOffset = 0n;

    const offset = (gap: number): bigint => {
      // Commit markers and aborted transactions leave gaps.
      nextOffset += BigInt(1 + (gap % 3));
      return nextOffset;
    };
    const writeLease = (session: Session, pick: number, withTerm: bigint | undefined): bigint | undefined => {
      const { member, pair } = session;
      if ((newestSeen.get(pair.producerId) ?? -1) > pair.epoch) return undefined;
      newestSeen.set(pair.producerId, pair.epoch);
      const at = offset(pick);
      const deadlineMs = BigInt(pick) * 7n;
      const record: Lease = {
        kind: "lease",
        role: ROLE,
        member,
        pair,
        term: withTerm,
        grantedAtMs: 0n,
        deadlineMs,
        attributes: NO_ATTRIBUTES,
      };
      records.push({ ...record, offset: at });
      lastLeaseIsTrue = session === leader;
      if (session === leader) {
        lease = {
          member,
          token: `${session.term ?? at}:${pair.producerId}:${pair.epoch}`,
          deadlineMs,
          offset: at,
        };
      }
      return at;
    };

    for (const { kind, pick, ...rest } of steps) {
      const member = MEMBERS[pick % MEMBERS.length] as MemberId;
      if (kind === "register") {
        const at = offset(pick);
        records.push({
          kind: "registration",
          role: ROLE,
          member,
          registeredAtMs: BigInt(pick),
          attributes: NO_ATTRIBUTES,
          offset: at,
        });
        roster.set(member, at);
      } else if (kind === "leave") {
        records.push({ kind: "registration-removed", role: ROLE, member, offset: offset(pick) });
        roster.delete(member);
      } else if (kind === "mint") {
        current = { producerId: current.producerId, epoch: current.epoch + 1 };
        const foreign = options.foreign && "foreign" in rest && rest.foreign;
        sessions.push({ member, pair: current, foreign, term: undefined });
      } else if (kind === "rotate") {
        const producerId = ids.shift();
        if (producerId !== undefined) current = { producerId, epoch: -1 };
      } else if (kind === "grant") {
        const session = sessions.at(-1);
        if (session === undefined || session.pair !== current || session.term !== undefined) continue;
        leader = session;
        session.term = writeLease(session, pick, undefined);
      } else if (kind === "overtake") {
        const late = sessions.find(({ term, pair }) => term === undefined && pair.producerId !== current.producerId);
        if (late === undefined || leader === undefined || leader.pair !== current) continue;
        late.term = writeLease(late, pick, undefined);
        current = { producerId: current.producerId, epoch: current.epoch + 1 };
        leader = { ...leader, pair: current, term: undefined };
        sessions.push(leader);
        leader.term = writeLease(leader, pick, undefined);
      } else if (kind === "renew") {
        const granted = sessions.filter((session) => session.term !== undefined);
        // Half of the time the leader, otherwise anyone who ever was.
        const session = pick % 2 === 0 ? leader : granted[pick % Math.max(1, granted.length)];
        if (session?.term !== undefined) writeLease(session, pick, session.foreign ? undefined : session.term);
      } else if (kind === "remove-lease") {
        if (!options.removals) continue;
        records.push({ kind: "lease-removed", role: ROLE, offset: offset(pick) });
        lease = undefined;
      } else {
        const role = Role.of("dispatcher");
        const at = offset(pick);
        records.push({
          kind: "registration",
          role,
          member,
          registeredAtMs: 0n,
          attributes: NO_ATTRIBUTES,
          offset: at,
        });
        records.push({ kind: "lease-removed", role, offset: offset(pick) });
      }
    }
    const joined = [...roster].sort(([, a], [, b]) => (a < b ? -1 : 1));
    return { records, truth: { roster: joined, lease }, lastLeaseIsTrue };
  });
