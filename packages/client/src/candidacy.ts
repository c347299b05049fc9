import {
  type Clock,
  type Decision,
  DuplicateMemberError,
  FencedError,
  KrabkaError,
  type LeaseConfig,
  MAX_TIMER_MS,
  type MemberId,
  type RoleState,
  Succession,
  type Transport,
} from "@krabka/core";
import { Backoff } from "./backoff.js";
import type { Logger } from "./events.js";
import { type Limit, pause } from "./limits.js";
import type { Registrar } from "./registrar.js";
import { Reign, type Tenure } from "./reign.js";
import type { RoleView } from "./role-view.js";

/**
 * How old a state may be on which a mint rests. A process that was paused in between reads the role again. Where reading
 * itself takes longer, each attempt gets twice the time of the one before, up to a lease.
 */
const FRESH_MS = 250;

/** How long a caller that gave up may wait for the release of a grant that was already on its way. */
const GIVE_UP_MS = 2_000;

/** Errors that pass by themselves: a candidate goes on after them. */
const PASSING = new Set(["BUSY", "UNREACHABLE", "TIMEOUT", "NOT_COMMITTED", "UNKNOWN_OUTCOME", "FENCED"]);

const isPassing = (error: unknown): boolean => KrabkaError.is(error) && PASSING.has(error.code);

/** A candidacy that was won. */
export interface Victory {
  readonly reign: Reign;
  readonly tenure: Tenure;
  /** From the start of the winning challenge to the confirmed grant. */
  readonly takeoverMs: number;
}

export interface CandidacyOptions {
  readonly removeMissed: boolean;
}

/**
 * Registers, waits for its turn, mints and grants. One at a time for a role and member; everything it decides comes from
 * the role's state and `Succession`.
 */
export class Candidacy {
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #config: LeaseConfig;
  readonly #view: RoleView;
  readonly #registrar: Registrar;
  readonly #options: CandidacyOptions;
  readonly #logger: Logger;
  readonly #backoff = new Backoff();
  #freshMs = FRESH_MS;

  constructor(
    transport: Transport,
    clock: Clock,
    config: LeaseConfig,
    view: RoleView,
    registrar: Registrar,
    options: CandidacyOptions,
    logger: Logger,
  ) {
    this.#transport = transport;
    this.#clock = clock;
    this.#config = config;
    this.#view = view;
    this.#registrar = registrar;
    this.#options = options;
    this.#logger = logger;
  }

  /**
   * Resolves when this member leads. Whatever it throws, no registration is left behind as far as the log can be reached.
   *
   * @throws {KrabkaError} the limit's reason, `DUPLICATE_MEMBER`, `UNAUTHORIZED`, `UNSUPPORTED`, `INVALID_ARGUMENT`,
   * `UNKNOWN_TOPIC`, `CLOSED`.
   */
  async win(limit: Limit): Promise<Victory> {
    let tried = false;
    try {
      await this.#retrying(limit, () => this.#requirePermission(limit));
      for (;;) {
        limit.throwIfReached();
        const { failure } = this.#view;
        if (failure !== undefined) throw failure;
        if (!this.#isCurrent) {
          await this.#retrying(limit, () => this.#catchUp(limit));
          continue;
        }
        const decision = this.#decide();
        if (decision.kind === "CHALLENGE" || decision.kind === "HOLD") {
          const victory = await this.#retrying(limit, () => this.#challenge(limit));
          if (victory !== undefined) return victory;
        } else if (decision.kind === "NOT_REGISTERED") {
          tried = true;
          await this.#retrying(limit, () => this.#join(limit));
        } else {
          this.#backoff.reset();
          await this.#nextChange(this.#delayUntil(decision.waitUntilMs), limit.signal);
        }
      }
    } catch (error) {
      // A duplicate's registration is the other process's now; taking it back would evict the other one.
      if (tried && !(error instanceof DuplicateMemberError)) await this.#withdraw();
      throw error;
    }
  }

  /** A member without rights on the role's transactional id is told before it stands in anybody's way. */
  async #requirePermission(limit: Limit): Promise<void> {
    if (!this.#transport.capabilities.describe.supported) return;
    const { signal, restMs: timeoutMs } = limit;
    await this.#transport.describe(this.#registrar.role, { signal, timeoutMs, requireWrite: true });
  }

  /** The decision for the current state; before the first registration of this candidacy it is to register. */
  #decide(): Decision {
    if (this.#registrar.joinOffset < 0n) return { kind: "NOT_REGISTERED" };
    const { state } = this.#view;
    if (this.#registrar.isContested(state.registrationOf(this.#registrar.member))) throw this.#registrar.duplicate();
    return this.#evaluate(state);
  }

  #evaluate(state: RoleState): Decision {
    return Succession.evaluate(state, this.#registrar.member, this.#nowMs(state), this.#config);
  }

  #nowMs(state: RoleState): bigint {
    const { member, registeredAtMonotonicMs } = this.#registrar;
    return this.#view.watch.nowMs(state, { entry: state.registrationOf(member), registeredAtMonotonicMs });
  }

  #delayUntil(atMs: bigint): number {
    const delayMs = atMs - this.#nowMs(this.#view.state);
    return delayMs > BigInt(MAX_TIMER_MS) ? MAX_TIMER_MS : Number(delayMs);
  }

  async #join(limit: Limit): Promise<void> {
    const position = await this.#registrar.register(limit);
    if (position.appendedAtMs !== undefined) this.#view.watch.logTime(position.appendedAtMs);
  }

  /** Whether the state was read, with the own registration: an older one must not say that there is none. */
  get #isCurrent(): boolean {
    return this.#view.isCurrent && this.#view.hasSeen(this.#registrar.joinOffset);
  }

  async #catchUp(limit: Limit): Promise<void> {
    await this.#view.sync({ signal: limit.signal, timeoutMs: limit.restMs });
    while (!this.#isCurrent) {
      limit.throwIfReached();
      await this.#nextChange(this.#config.renewMs, limit.signal);
    }
  }

  /** One attempt; undefined when the role read once more says that it is not this member's turn after all. */
  async #challenge(limit: Limit): Promise<Victory | undefined> {
    const startedAtMs = this.#clock.monotonicMs();
    await this.#view.sync({ signal: limit.signal, timeoutMs: limit.restMs });
    const state = this.#view.state;
    if (!this.#mayMint(state, startedAtMs)) return undefined;
    const session = await this.#transport.openSession(this.#registrar.role, {
      signal: limit.signal,
      timeoutMs: limit.restMs,
      transactionTimeoutMs: transactionTimeoutMs(this.#config.leaseMs),
      mayMint: () => this.#mayMint(state, startedAtMs),
    });
    const reign = new Reign(this.#transport, this.#clock, this.#config, this.#registrar, session);
    try {
      const grantLimitMs = Math.min(limit.restMs ?? this.#config.leaseMs, this.#config.leaseMs);
      const tenure = await reign.grant(state, this.#missed(state), { signal: limit.signal, timeoutMs: grantLimitMs });
      const takenMs = this.#clock.monotonicMs();
      if (takenMs - tenure.sinceMs >= this.#config.leaseMs) {
        throw new KrabkaError("TIMEOUT", `The grant of role ${state.role} took longer than the lease`);
      }
      if (session.mustRemint && !this.#transport.capabilities.conditionalRemint.supported) {
        throw new KrabkaError(
          "BUSY",
          `The grant of role ${state.role} lost an answer, so its pair could write nothing`,
        );
      }
      return { reign, tenure, takeoverMs: takenMs - startedAtMs };
    } catch (error) {
      if (limit.signal.aborted && !FencedError.is(error)) await takeBack(reign).catch(() => undefined);
      await session.close();
      throw error;
    }
  }

  #mayMint(state: RoleState, readAtMs: number): boolean {
    if (this.#view.state !== state || !this.#isFresh(readAtMs)) return false;
    const { kind } = this.#evaluate(state);
    return kind === "CHALLENGE" || kind === "HOLD";
  }

  #isFresh(readAtMs: number): boolean {
    if (this.#clock.monotonicMs() - readAtMs <= this.#freshMs) return true;
    this.#freshMs = Math.min(2 * this.#freshMs, Math.max(FRESH_MS, this.#config.leaseMs));
    return false;
  }

  /**
   * Members that let their turn pass, so that each costs its delay once: those ranked before this one, and the holder
   * whose lease ran out, unless it registered again since.
   */
  #missed(state: RoleState): readonly MemberId[] {
    const { member } = this.#registrar;
    const { lease } = state;
    const ownRank = state.rankOf(member);
    if (!this.#options.removeMissed || ownRank === undefined || lease?.member === member) return [];
    return state.roster
      .filter((entry) =>
        entry.member === lease?.member
          ? entry.joinOffset < lease.offset
          : entry.member !== member && (state.rankOf(entry.member) as number) < ownRank,
      )
      .map((entry) => entry.member);
  }

  /** Resolves at the next change of the state, after `delayMs`, or when the signal fires. */
  #nextChange(delayMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        timer.cancel();
        stop();
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = this.#clock.setTimer(Math.min(Math.max(0, delayMs), MAX_TIMER_MS), done);
      const stop = this.#view.onChange(done);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  /** Runs a step again after errors that pass by themselves, with growing pauses, as long as the limit allows. */
  async #retrying<T>(limit: Limit, step: () => Promise<T>): Promise<T | undefined> {
    try {
      return await step();
    } catch (error) {
      if (limit.signal.aborted) throw withCause(limit.signal.reason, error);
      if (!isPassing(error)) throw error;
      const { role, member } = this.#registrar;
      this.#logger.debug({ role, member, err: error }, "a step of the candidacy failed; the role is read again");
      // Also after a fence: the rival that minted has yet to write its grant, and would be fenced by another mint.
      await pause(this.#clock, this.#backoff.next(), limit.signal);
      return undefined;
    }
  }

  async #withdraw(): Promise<void> {
    try {
      await this.#registrar.withdraw();
    } catch (error) {
      const { role, member } = this.#registrar;
      this.#logger.warn({ role, member, err: error }, "the registration could not be taken back; its turn will pass");
    }
  }
}

/** The grant may stand in the log although the caller gave up: then let nobody wait for it. */
async function takeBack(reign: Reign): Promise<void> {
  if (reign.session.mustRemint) await reign.session.remint({ timeoutMs: GIVE_UP_MS / 2 });
  await reign.release(undefined, { timeoutMs: GIVE_UP_MS / 2 });
}

/** The caller's bound was reached; say what stood in the way. */
const withCause = (reason: unknown, cause: unknown): unknown =>
  KrabkaError.is(reason) && reason.code === "TIMEOUT"
    ? new KrabkaError("TIMEOUT", `${reason.message}; the last attempt failed: ${(cause as Error).message}`, { cause })
    : reason;

/**
 * After this long the broker ends an open transaction. Long enough for a slow broker also where leases are short, and at
 * most a minute (brokers refuse more than `transaction.max.timeout.ms`, 15 minutes by default).
 */
const transactionTimeoutMs = (leaseMs: number): number => Math.min(60_000, Math.max(10_000, leaseMs));
