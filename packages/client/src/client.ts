import { setMaxListeners } from "node:events";
import {
  type Attributes,
  type Clock,
  DuplicateMemberError,
  type ErrorCode,
  encodeAttributes,
  KrabkaError,
  LeaseConfig,
  type LeaseOptions,
  MemberId,
  NO_ATTRIBUTES,
  type Prepared,
  Role,
  type Transport,
} from "@krabka/core";
import { type LeaderHandler, runCampaign } from "./campaign.js";
import { Candidacy } from "./candidacy.js";
import { type Logger, publish, silentLogger } from "./events.js";
import { GuardedWriter } from "./guarded-writer.js";
import { Leadership } from "./leadership.js";
import { LeadershipStatus } from "./leadership-status.js";
import { Limit, type LimitOptions, pause } from "./limits.js";
import { Registrar } from "./registrar.js";
import { type Observation, observations } from "./role-observer.js";
import { RoleView } from "./role-view.js";
import { systemClock } from "./system-clock.js";
import { Tenancy } from "./tenancy.js";

export interface ClientOptions extends LeaseOptions {
  /** Renew in the background. @default true */
  readonly autoRenew?: boolean | undefined;
  /** Put the token into the header `krabka-token` of guarded records. @default true */
  readonly tokenHeader?: boolean | undefined;
  /**
   * Remove members that missed their turn from the roster when taking over. Turn it off for rosters shared with
   * implementations that do not expect it. @default true
   */
  readonly removeMissed?: boolean | undefined;
  /** Writes of one leadership that may wait; more reject with `QUEUE_FULL`. @default 10000 */
  readonly maxQueuedWrites?: number | undefined;
  /** Close the transport with the client. @default true */
  readonly ownsTransport?: boolean | undefined;
  /** @default none */
  readonly logger?: Logger | undefined;
  /** @default the system's */
  readonly clock?: Clock | undefined;
}

export interface AcquireOptions extends LimitOptions {
  /** Facts for observers, such as the address at which this member is reached: strings, at most 4 KiB as JSON. */
  readonly attributes?: Attributes | undefined;
}

/** Time that `close` gives to candidates and leaders to leave in order; half of it is for writes that were accepted. */
const CLOSE_MS = 5_000;

/** The way in: compete for roles, lead, observe. One per process is enough; it serves any number of roles. */
export class CoordinationClient implements AsyncDisposable {
  readonly #transport: Transport;
  readonly #options: ClientOptions;
  readonly #config: LeaseConfig;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #closing = new AbortController();
  /** By role and member; a value settles when that candidacy or leadership is over in every respect. */
  readonly #engaged = new Map<string, Engagement>();
  #closed: Promise<void> | undefined;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` for timings that cannot work. */
  constructor(transport: Transport, options: ClientOptions = {}) {
    this.#transport = transport;
    this.#options = options;
    this.#config = LeaseConfig.of(options);
    this.#clock = options.clock ?? systemClock;
    this.#logger = options.logger ?? silentLogger;
    // Each waiting call listens; a thousand roles are no leak.
    setMaxListeners(0, this.#closing.signal);
    for (const warning of this.#config.warnings) this.#logger.warn({}, warning);
  }

  /**
   * Competes for a role and resolves when this member leads. Registers anew, at the end of the line. Without `timeoutMs`
   * it waits as long as it takes.
   *
   * @throws {KrabkaError} `TIMEOUT` or `ABORTED` (no registration is left behind), `INVALID_ARGUMENT`, `UNREACHABLE` (the
   * cluster, at the start), `UNAUTHORIZED`, `TOPIC_MISCONFIGURED`, `UNSUPPORTED`, `DUPLICATE_MEMBER`, `CLOSED`.
   */
  async acquire(role: Role, member: MemberId, options: AcquireOptions = {}): Promise<Leadership> {
    Role.of(role);
    MemberId.of(member);
    const { attributes = NO_ATTRIBUTES } = options;
    encodeAttributes(attributes);
    this.#requireOpen();
    const limit = new Limit(this.#clock, `acquire of role ${role}`, options, this.#closing.signal);
    try {
      const engagement = await this.#engage(role, member, limit);
      try {
        const leadership = await this.#compete(role, member, attributes, limit);
        engagement.leadership = leadership;
        this.#releaseWhenOver(engagement, leadership);
        // The caller may have given up, or closed the client, at the very moment of the win.
        if (limit.signal.aborted) await leadership.close();
        limit.throwIfReached();
        return leadership;
      } catch (error) {
        engagement.release();
        throw error;
      }
    } catch (error) {
      throw this.#closing.signal.aborted ? this.#closing.signal.reason : error;
    } finally {
      limit.dispose();
    }
  }

  /**
   * Leads again and again until `signal` fires: competes, runs `handler` while leading, gives the role up when it returns,
   * and competes again. Handlers of two terms never overlap. Troubles that pass (an unreachable cluster, a takeover) are
   * waited out.
   *
   * @returns when the signal fired, the handler settled and the role was given up.
   * @throws whatever `handler` throws, after giving the role up; and the errors of `acquire` that do not pass.
   */
  async campaign(
    role: Role,
    member: MemberId,
    handler: LeaderHandler,
    options: Omit<AcquireOptions, "timeoutMs"> = {},
  ): Promise<void> {
    const limit = new Limit(this.#clock, `campaign for role ${role}`, options);
    const leaving = AbortSignal.any([limit.signal, this.#closing.signal]);
    try {
      const acquire = () => this.acquire(role, member, { ...options, signal: limit.signal });
      const rest = () => pause(this.#clock, this.#config.staggerMs, leaving);
      await runCampaign(acquire, handler, limit, rest);
    } finally {
      limit.dispose();
    }
  }

  /**
   * Observes a role without competing: the current view first, then one after each change, until the loop is left or
   * `signal` fires.
   */
  async *observe(role: Role, options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Observation, void, void> {
    Role.of(role);
    this.#requireOpen();
    const limit = new Limit(this.#clock, `observe of role ${role}`, options, this.#closing.signal);
    try {
      await this.#prepare(limit);
    } catch (error) {
      limit.dispose();
      throw error;
    }
    const view = new RoleView(this.#transport, role, this.#clock, this.#config.leaseMs, this.#logger);
    yield* observations(view, this.#clock, limit);
  }

  /**
   * Asks the transaction coordinator who may write for a role. Needs no membership.
   *
   * @throws {KrabkaError} `UNSUPPORTED`, `UNREACHABLE`, `UNAUTHORIZED`, `TIMEOUT`, `ABORTED`, `CLOSED`
   */
  async describe(role: Role, options: LimitOptions = {}): Promise<LeadershipStatus> {
    Role.of(role);
    this.#requireOpen();
    const limit = new Limit(this.#clock, `describe of role ${role}`, options);
    try {
      await this.#prepare(limit);
      const answer = await this.#transport.describe(role, { signal: limit.signal, timeoutMs: limit.restMs });
      return new LeadershipStatus(role, answer.pair, answer.transactionState);
    } finally {
      limit.dispose();
    }
  }

  /** Gives up all roles and candidacies, then closes the transport. Idempotent; never rejects. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#closing.abort(new KrabkaError("CLOSED", "The client was closed"));
    const engaged = [...this.#engaged.values()];
    const left = Promise.all(
      engaged.map(async (engagement) => {
        await engagement.leadership?.closeWithin(Math.min(CLOSE_MS / 2, this.#config.leaseMs));
        await engagement.over;
      }),
    );
    let timer = { cancel() {} };
    await Promise.race([
      left,
      new Promise<void>((resolve) => {
        timer = this.#clock.setTimer(CLOSE_MS, resolve);
      }),
    ]);
    timer.cancel();
    if (this.#options.ownsTransport ?? true) await this.#transport.close();
  }

  #requireOpen(): void {
    if (this.#closing.signal.aborted) throw this.#closing.signal.reason;
  }

  async #prepare(limit: Limit): Promise<Prepared> {
    const prepare = () => {
      const { restMs } = limit;
      // A little less than there is, so that the transport can still say what stood in the way.
      const timeoutMs = restMs === undefined ? undefined : Math.ceil(restMs * 0.9);
      return limit.race(this.#transport.prepare({ signal: limit.signal, timeoutMs }));
    };
    // One preparation serves all calls, so it may have ended with the bounds of another one; the second is this call's own.
    const prepared = await prepare().catch((first: unknown) => {
      if (limit.signal.aborted || !isOfBounds(first)) throw first;
      return prepare().catch((second: unknown) => {
        // In the little time that was left the transport may have learned nothing; the first failure says why.
        throw hasCode(first, "UNREACHABLE") && hasCode(second, "TIMEOUT") ? first : second;
      });
    });
    for (const warning of prepared.warnings) this.#logger.warn({}, warning);
    return prepared;
  }

  /** Waits for the end of a leadership that was lost; refuses beside one that runs. */
  async #engage(role: Role, member: MemberId, limit: Limit): Promise<Engagement> {
    const key = JSON.stringify([role, member]);
    for (;;) {
      const known = this.#engaged.get(key);
      if (known === undefined) break;
      if (known.leadership?.loss === undefined) {
        throw new DuplicateMemberError(`This client already competes for role ${role} as ${member}`, { role, member });
      }
      await limit.race(known.over);
    }
    const engagement = new Engagement(() => {
      if (this.#engaged.get(key) === engagement) this.#engaged.delete(key);
    });
    this.#engaged.set(key, engagement);
    return engagement;
  }

  #releaseWhenOver(engagement: Engagement, leadership: Leadership): void {
    void leadership.over.then(() => engagement.release());
  }

  async #compete(role: Role, member: MemberId, attributes: Attributes, limit: Limit): Promise<Leadership> {
    const { topic } = await this.#prepare(limit);
    const { transport, clock, config, logger } = this.#parts();
    const view = new RoleView(transport, role, clock, config.leaseMs, logger);
    try {
      const registrar = new Registrar(transport, clock, topic, { role, member, attributes });
      const options = { removeMissed: this.#options.removeMissed ?? true };
      const candidacy = new Candidacy(transport, clock, config, view, registrar, options, logger);
      const { reign, tenure, takeoverMs } = await candidacy.win(limit);
      const autoRenew = this.#options.autoRenew ?? true;
      const tenancy = new Tenancy({ transport, clock, config, view, registrar, reign, tenure, autoRenew, logger });
      publish("krabka.acquired", { ...tenancy.who, takeoverMs });
      logger.info({ role, member, token: String(tenure.token), takeoverMs }, "leads");
      const writer = new GuardedWriter(tenancy, this.#writerOptions(topic.name), logger);
      return new Leadership(tenancy, writer, logger);
    } catch (error) {
      view.close();
      throw error;
    }
  }

  #parts() {
    return { transport: this.#transport, clock: this.#clock, config: this.#config, logger: this.#logger };
  }

  #writerOptions(coordinationTopic: string) {
    const { tokenHeader = true, maxQueuedWrites = 10_000 } = this.#options;
    return { tokenHeader, maxQueuedWrites, coordinationTopic };
  }
}

const isOfBounds = (error: unknown): boolean =>
  hasCode(error, "ABORTED") || hasCode(error, "TIMEOUT") || hasCode(error, "UNREACHABLE");

const hasCode = (error: unknown, code: ErrorCode): boolean => KrabkaError.is(error) && error.code === code;

/** One candidacy or leadership of this client, so that a member never competes against itself. */
class Engagement {
  readonly over: Promise<void>;
  readonly release: () => void;
  leadership: Leadership | undefined;

  constructor(onRelease: () => void) {
    let resolve = () => {};
    this.over = new Promise((done) => {
      resolve = done;
    });
    this.release = () => {
      onRelease();
      resolve();
    };
  }
}
