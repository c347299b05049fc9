import {
  type FencingToken,
  KrabkaError,
  MemberId,
  type RecordPosition,
  type Role,
  type RosterEntry,
} from "@krabka/core";
import { Departure } from "./departure.js";
import type { Logger } from "./events.js";
import type { GuardedWriter } from "./guarded-writer.js";
import { Limit, type LimitOptions } from "./limits.js";
import type { Loss } from "./loss.js";
import type { Tenancy } from "./tenancy.js";
import type { WriteRecord } from "./write.js";

/** Where a guarded record stands. */
export type Written = RecordPosition;

/** Collects the records of one transaction. */
export interface TransactionScope {
  /** Adds a record. Nothing is sent before the function given to `transaction` has returned. */
  write(record: WriteRecord): void;
}

/**
 * The right to write for a role, as long as it lasts; once lost, it stays lost.
 *
 * `isLeader`, `token` and `write` judge by the monotonic clock at the moment of asking, so a blocked event loop or a paused
 * process gets no wrong yes from a timer that has not fired. That is a courtesy: what keeps a deposed leader from
 * writing is the broker.
 */
export class Leadership implements AsyncDisposable {
  readonly role: Role;
  readonly member: MemberId;
  /** @internal Resolves once the leadership is lost and nothing of it is under way any more. */
  readonly over: Promise<void>;
  readonly #tenancy: Tenancy;
  readonly #writer: GuardedWriter;
  readonly #logger: Logger;
  readonly #departure: Departure;

  /** @internal Use `CoordinationClient.acquire`. */
  constructor(tenancy: Tenancy, writer: GuardedWriter, logger: Logger) {
    this.role = tenancy.registrar.role;
    this.member = tenancy.registrar.member;
    this.#tenancy = tenancy;
    this.#writer = writer;
    this.#logger = logger;
    this.#departure = new Departure(tenancy, logger);
    this.over = this.#departure.over;
  }

  /** Whether this member leads, by its own clock, right now. */
  get isLeader(): boolean {
    return this.#tenancy.isLeader;
  }

  /**
   * The token to hand to resources. Ask for it at each use: it can move forward while the leadership lasts, because a
   * write whose answer was lost is followed by a new epoch and a new grant.
   *
   * @throws {KrabkaError} `NOT_LEADER`, `FENCED` or `DUPLICATE_MEMBER`: this member does not lead any more.
   */
  get token(): FencingToken {
    this.#tenancy.requireLeading();
    return this.#tenancy.token;
  }

  /** Fires once, when the leadership is given up or lost; its reason is the error. */
  get signal(): AbortSignal {
    return this.#tenancy.signal;
  }

  /** How and why it ended, or undefined while it lasts. */
  get loss(): Loss | undefined {
    return this.#tenancy.loss;
  }

  /** Milliseconds until the lease ends unless it is renewed; 0 once the leadership ended. */
  get remainingMs(): number {
    return this.isLeader ? this.#tenancy.restMs : 0;
  }

  /**
   * Writes one record, or several atomically, in the role's transaction. Resolves once it is committed, with the place of
   * each record in order. Concurrent calls are executed in the order of the calls.
   *
   * @param options.timeoutMs @default what is left of the lease
   * @throws {FencedError} The broker refused it: nothing of it is or will be visible, and this member does not lead.
   * @throws {KrabkaError} `NOT_LEADER` or `QUEUE_FULL`: nothing was sent. `NOT_COMMITTED`: nothing is visible, and this
   * member still leads. `UNKNOWN_OUTCOME`: it may be visible; read the topic before repeating it. `TIMEOUT`, `ABORTED`:
   * given up before it was sent. `INVALID_ARGUMENT`, `UNKNOWN_TOPIC`, `UNAUTHORIZED`: nothing was written.
   */
  write(record: WriteRecord, options?: LimitOptions): Promise<Written>;
  write(records: readonly WriteRecord[], options?: LimitOptions): Promise<readonly Written[]>;
  async write(
    given: WriteRecord | readonly WriteRecord[],
    options: LimitOptions = {},
  ): Promise<Written | readonly Written[]> {
    if (isList(given)) return this.#writer.write(given, options);
    const [written] = await this.#writer.write([given], options);
    return written as Written;
  }

  /**
   * Collects records in `build` and writes them in one transaction. No transaction is open while `build` runs. If it
   * throws, nothing was sent.
   *
   * @throws as `write`, and whatever `build` throws
   */
  async transaction<T>(
    build: (scope: TransactionScope) => T | Promise<T>,
    options: LimitOptions = {},
  ): Promise<{ readonly result: T; readonly written: readonly Written[] }> {
    this.#tenancy.requireLeading();
    const records: WriteRecord[] = [];
    const result = await build({
      write: (record) => {
        records.push(record);
      },
    });
    return { result, written: await this.#writer.write(records, options) };
  }

  /** Whether a renewal is due. For callers that renew by themselves (`autoRenew: false`). */
  get renewDue(): boolean {
    return this.#tenancy.renewDue;
  }

  /** Renews the lease now. Never two at a time: a call during a renewal shares its result. @throws as `write` */
  renew(): Promise<void> {
    return this.#tenancy.renew();
  }

  /**
   * Asks the coordinator whether it still takes this leader's writes. For reads and side effects that no broker guards.
   *
   * @returns false after a takeover; the leadership is lost then. While a new epoch is being taken, this waits for its end
   * where only that can tell.
   * @throws {KrabkaError} `UNREACHABLE`, `TIMEOUT`, `ABORTED`, `UNAUTHORIZED`, `UNSUPPORTED`
   */
  async verify(options: LimitOptions = {}): Promise<boolean> {
    if (!this.isLeader) return false;
    const limit = new Limit(this.#tenancy.clock, "verify", options);
    try {
      return await limit.race(this.#tenancy.verify({ signal: limit.signal, timeoutMs: limit.restMs }));
    } finally {
      limit.dispose();
    }
  }

  /**
   * Gives the role up: new writes are refused at once, those already accepted are finished under a lease that is renewed
   * until then, then the release goes out and the next in line leads within milliseconds. After a loss there is nothing
   * to give up, and it resolves.
   *
   * @param options.timeoutMs When it is reached, accepted writes that have not begun are refused with `NOT_LEADER`.
   * @default none: as long as the accepted writes take
   * @throws {KrabkaError} The release was not written, as far as is known; call again to retry, or let the lease run out.
   */
  async resign(options: LimitOptions = {}): Promise<void> {
    const limit = new Limit(this.#tenancy.clock, "resign", options);
    try {
      await this.#departure.begin("it resigned", limit, (limits) =>
        this.#tenancy.reign.release(this.#tenancy.token.term, limits),
      );
    } finally {
      limit.dispose();
    }
  }

  /**
   * Hands the role to a chosen standby, which takes over at once.
   *
   * @throws {KrabkaError} `INVALID_ARGUMENT` when `member` is not a registered standby, `UNREACHABLE` or `TIMEOUT` when that
   * could not be learned (this member still leads); otherwise as `resign`, which is also what tries again: this member has
   * given the role up by then.
   */
  async transferTo(member: MemberId, options: LimitOptions = {}): Promise<void> {
    this.#tenancy.requireLeading();
    const limit = new Limit(this.#tenancy.clock, "transferTo", options);
    try {
      const { member: heir, attributes } = await this.#heir(MemberId.of(member), limit);
      await this.#departure.begin(`it handed over to ${heir}`, limit, (limits) =>
        this.#tenancy.reign.transfer(this.#tenancy.token, heir, attributes, limits),
      );
    } finally {
      limit.dispose();
    }
  }

  /**
   * Like `resign`, but never rejects: what could not be released runs out by itself. Accepted writes have one lease to
   * finish; those that have not begun by then are refused with `NOT_LEADER`. Idempotent.
   */
  close(): Promise<void> {
    return this.closeWithin(this.#tenancy.leaseMs);
  }

  /** @internal `close` with another bound for the accepted writes; the release comes after it. */
  async closeWithin(drainMs: number): Promise<void> {
    const patience = new Limit(this.#tenancy.clock, "close", { timeoutMs: drainMs });
    try {
      await patience.race(this.resign());
    } catch {
      this.#tenancy.drained();
      await this.#resignAtLast();
    } finally {
      patience.dispose();
    }
    await this.#departure.finished();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal Resigns because of a handler's error, which becomes the reason of the loss. */
  async abandon(cause: unknown): Promise<void> {
    this.#tenancy.leave("its handler failed", { reason: "handler-failed", cause });
    await this.close();
  }

  async #resignAtLast(): Promise<void> {
    try {
      await this.resign({ timeoutMs: this.#tenancy.callMs() });
    } catch (error) {
      this.#logger.warn(
        { role: this.role, member: this.member, err: error },
        "the release failed; the lease runs out by itself",
      );
      this.#tenancy.left();
    }
  }

  async #heir(heir: MemberId, limit: Limit): Promise<RosterEntry> {
    const entry = heir === this.member ? undefined : await this.#standby(heir, limit);
    this.#tenancy.requireLeading();
    limit.throwIfReached();
    if (entry !== undefined) return entry;
    const { roster } = this.#tenancy.view.state;
    const standbys = roster.map((other) => other.member).filter((other) => other !== this.member);
    throw new KrabkaError(
      "INVALID_ARGUMENT",
      `transferTo wants a standby of role ${this.role} (there are: ${standbys.join(", ") || "none"}); got ${heir}`,
      this.#tenancy.who,
    );
  }

  /** A registration may be acknowledged to others before the own view, which follows the log, has it. */
  async #standby(member: MemberId, limit: Limit): Promise<RosterEntry | undefined> {
    const { view } = this.#tenancy;
    const known = view.state.registrationOf(member);
    if (known !== undefined) return known;
    await view.sync({ signal: limit.signal, timeoutMs: this.#tenancy.callMs(limit.restMs) });
    return view.state.registrationOf(member);
  }
}

const isList = (given: WriteRecord | readonly WriteRecord[]): given is readonly WriteRecord[] => Array.isArray(given);
