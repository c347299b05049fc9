import {
  type Attributes,
  type CallOptions,
  type Clock,
  type CoordinationEntry,
  encodeEntry,
  FencedError,
  FencingToken,
  KrabkaError,
  type LeaseConfig,
  type RecordPosition,
  type RoleState,
  samePair,
  type Transport,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import type { Registrar } from "./registrar.js";

/** After this long without a transaction a renewal goes in one: an idle transactional id expires (7 days by default). */
const TRANSACTION_EVERY_MS = 24 * 60 * 60 * 1_000;

/** A lease record of this leader that was acknowledged. */
export interface Tenure {
  readonly token: FencingToken;
  /** Monotonic instant at which the request for it started: validity counts from here. */
  readonly sinceMs: number;
}

/**
 * Writes the lease records of one leader: grant, renewal, release, transfer. Each is one atomic batch in the role's
 * partition: a fenced append where the backend can, else a transaction.
 */
export class Reign {
  readonly session: WriterSession;
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #config: LeaseConfig;
  readonly #registrar: Registrar;
  #transactionAtMs: number;

  constructor(transport: Transport, clock: Clock, config: LeaseConfig, registrar: Registrar, session: WriterSession) {
    this.#transport = transport;
    this.#clock = clock;
    this.#config = config;
    this.#registrar = registrar;
    this.session = session;
    this.#transactionAtMs = clock.monotonicMs();
  }

  get #appends(): boolean {
    return this.#transport.capabilities.fencedAppend.supported;
  }

  /** Whether a renewal may ride in the caller's transaction: not where lease records are appends to the same partition. */
  get piggybacks(): boolean {
    return !this.#appends;
  }

  /**
   * Grants the role to this session's pair and removes members that missed their turn. Its offset becomes the term.
   *
   * A fenced append proves only that no rival had *written* before. So the coordinator is asked afterwards: if it still
   * names the pair, no rival had minted before either, and terms follow the order of mints.
   *
   * @throws {FencedError} Somebody else minted meanwhile.
   * @throws {KrabkaError} The outcome could not be learned, or nothing was written; read the role and try again.
   */
  async grant(state: RoleState, removeMembers: readonly RosterMember[], options: CallOptions): Promise<Tenure> {
    const { pair } = this.session;
    const formerId = state.lease?.token.producerId;
    if (this.#appends && formerId !== undefined && formerId !== pair.producerId) await this.#retire(formerId, options);
    const sinceMs = this.#clock.monotonicMs();
    const removals = removeMembers.map(
      (member): CoordinationEntry => ({ kind: "registration-removed", role: this.#registrar.role, member }),
    );
    const { positions, appended } = await this.#write([this.#lease(undefined), ...removals], options);
    const token = FencingToken.of({ term: positions[0]?.offset as bigint, ...pair });
    if (appended) await this.#confirm(token, options);
    return { token, sinceMs };
  }

  /** @throws like `grant` */
  async renew(token: FencingToken, options: CallOptions): Promise<Tenure> {
    const sinceMs = this.#clock.monotonicMs();
    const idleTooLong = sinceMs - this.#transactionAtMs >= TRANSACTION_EVERY_MS;
    await this.#write([this.#lease(token.term)], options, !this.#appends || idleTooLong);
    return { token, sinceMs };
  }

  /** A renewal to put into a transaction of the caller's. */
  renewalEntry(token: FencingToken): CoordinationEntry {
    return this.#lease(token.term);
  }

  /**
   * Gives the role up: the next in line challenges at once.
   *
   * @param term Undefined when the grant was sent but never acknowledged: the record then has the grant's term, or its own offset.
   * @throws like `grant`
   */
  async release(term: bigint | undefined, options: CallOptions): Promise<void> {
    // In the past by half a stagger: clock skew delays nobody, and further ranks still stagger.
    const deadlineMs = -Math.floor(this.#config.staggerMs / 2);
    await this.#leave(this.#lease(term, { deadlineMs }), options);
  }

  /** Hands the role to a standby: a live lease that names it, so that it takes over at once. @throws like `grant` */
  async transfer(
    token: FencingToken,
    member: RosterMember,
    attributes: Attributes,
    options: CallOptions,
  ): Promise<void> {
    await this.#leave(this.#lease(token.term, { member, attributes }), options);
  }

  async #leave(lease: CoordinationEntry, options: CallOptions): Promise<void> {
    const { role, member } = this.#registrar;
    await this.#write([lease, { kind: "registration-removed", role, member }], options);
  }

  #lease(
    term: bigint | undefined,
    change: { readonly member?: RosterMember; readonly attributes?: Attributes; readonly deadlineMs?: number } = {},
  ): CoordinationEntry {
    const { role, member, attributes } = this.#registrar;
    const nowMs = Math.floor(this.#clock.wallMs());
    return {
      kind: "lease",
      role,
      member: change.member ?? member,
      pair: this.session.pair,
      term,
      grantedAtMs: BigInt(nowMs),
      deadlineMs: BigInt(nowMs + (change.deadlineMs ?? this.#config.leaseMs)),
      attributes: change.attributes ?? attributes,
    };
  }

  async #write(
    entries: readonly CoordinationEntry[],
    options: CallOptions,
    inTransaction = !this.#appends,
  ): Promise<{ readonly positions: readonly RecordPosition[]; readonly appended: boolean }> {
    const { target } = this.#registrar;
    const records = entries.map(encodeEntry);
    const append = () => this.session.append(target, records, options);
    const outcome = inTransaction ? undefined : await this.#unlessUnsupported(append);
    if (outcome !== undefined) return { positions: this.#positions(outcome), appended: true };
    const placed = records.map((record) => ({ ...target, ...record }));
    const positions = this.#positions(await this.session.commit(placed, options));
    this.#transactionAtMs = this.#clock.monotonicMs();
    return { positions, appended: false };
  }

  /** Undefined where the broker turns out to take no fenced appends: nothing was written, and the pair is still good. */
  async #unlessUnsupported(append: () => Promise<WriteOutcome>): Promise<WriteOutcome | undefined> {
    try {
      return await append();
    } catch (error) {
      if (this.#appends || !KrabkaError.is(error) || error.code !== "UNSUPPORTED") throw error;
      return undefined;
    }
  }

  #positions(outcome: WriteOutcome): readonly RecordPosition[] {
    const { role, member } = this.#registrar;
    switch (outcome.status) {
      case "committed":
        return outcome.positions;
      case "fenced":
        throw new FencedError(`The broker refused a lease record of ${member} for role ${role}`, {
          role,
          member,
          cause: outcome.cause,
        });
      case "aborted":
        throw new KrabkaError("NOT_COMMITTED", `A lease record of ${member} for role ${role} was not written`, {
          role,
          member,
          cause: outcome.cause,
        });
      case "unknown":
        throw new KrabkaError(
          "UNKNOWN_OUTCOME",
          `Whether a lease record of ${member} for role ${role} was written is not known`,
          {
            role,
            member,
            cause: outcome.cause,
          },
        );
    }
  }

  /** The partition checks epochs per producer id, so an id that the role left is shut out before the grant. */
  async #retire(formerId: bigint, options: CallOptions): Promise<void> {
    // Any record of the format would do; the own registration once more says nothing new to anybody.
    const record = encodeEntry(this.#registrar.entry());
    const outcome = await this.#unlessUnsupported(() =>
      this.session.retire(formerId, this.#registrar.target, record, options),
    );
    // In transactions the coordinator refuses the former id.
    if (outcome === undefined) return;
    // Refused as older than the last epoch: the id was shut out before.
    if (outcome.status === "fenced") return;
    const [position] = this.#positions(outcome);
    if (position !== undefined) this.#registrar.joined(position);
  }

  async #confirm(token: FencingToken, options: CallOptions): Promise<void> {
    const { role, member } = this.#registrar;
    const { pair } = await this.#transport.describe(role, options);
    if (pair !== undefined && samePair(pair, token)) return;
    throw new FencedError(`A rival took role ${role} over while ${member} wrote its grant`, { role, member, token });
  }
}

type RosterMember = Registrar["member"];
