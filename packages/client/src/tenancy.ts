import {
  type CallOptions,
  type Clock,
  FencedError,
  type FencingToken,
  KrabkaError,
  type LeaseConfig,
  samePair,
  type Transport,
  type WriteOutcome,
} from "@krabka/core";
import { Backoff } from "./backoff.js";
import { type Logger, publish } from "./events.js";
import { type Limit, pause } from "./limits.js";
import { Loss } from "./loss.js";
import type { Registrar } from "./registrar.js";
import type { Reign, Tenure } from "./reign.js";
import { Renewals } from "./renewals.js";
import { RivalWatch } from "./rival-watch.js";
import type { RoleView } from "./role-view.js";
import { SerialQueue } from "./serial-queue.js";

export interface TenancyParts {
  readonly transport: Transport;
  readonly clock: Clock;
  readonly config: LeaseConfig;
  readonly view: RoleView;
  readonly registrar: Registrar;
  readonly reign: Reign;
  readonly tenure: Tenure;
  readonly autoRenew: boolean;
  readonly logger: Logger;
}

/**
 * - `leading`: renews, takes writes.
 * - `draining`: gave the role up on purpose; finishes the writes that it had accepted, and renews meanwhile, or a standby
 *   would take the role from under them.
 * - `leaving`: writes its release, or failed to. Renews and writes no more: nothing of this term may follow the release.
 * - `lost`: for good.
 */
type Phase = "leading" | "draining" | "leaving" | "lost";

interface Leave {
  readonly reason: "resigned" | "handler-failed";
  readonly cause?: unknown;
}

/**
 * The state machine of one leadership: how long it lasts, and how it ends. Everything that reaches the broker under the
 * role's pair goes through its queue, one thing at a time.
 *
 * Validity is judged by the monotonic clock at the moment of asking, from the start of the last acknowledged renewal.
 */
export class Tenancy {
  readonly queue = new SerialQueue();
  readonly reign: Reign;
  readonly registrar: Registrar;
  readonly view: RoleView;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly #config: LeaseConfig;
  readonly #autoRenew: boolean;
  readonly #logger: Logger;
  readonly #left = new AbortController();
  readonly #lost = new AbortController();
  readonly #renewals: Renewals;
  readonly #rivals: RivalWatch;
  #phase: Phase = "leading";
  #loss: Loss | undefined;
  #tenure: Tenure;
  #expiryTimer = { cancel() {} };
  /** Settles with the taking of a new epoch; never rejects. */
  #reminting: Promise<unknown> | undefined;
  readonly #regainBackoff = new Backoff();
  /** Before the next attempt to regain; none unless the last one failed. */
  #regainPauseMs = 0;

  constructor(parts: TenancyParts) {
    this.transport = parts.transport;
    this.clock = parts.clock;
    this.view = parts.view;
    this.registrar = parts.registrar;
    this.reign = parts.reign;
    this.#config = parts.config;
    this.#autoRenew = parts.autoRenew;
    this.#logger = parts.logger;
    this.#tenure = parts.tenure;
    this.#renewals = new Renewals(this, this.#config.renewMs, this.#logger);
    this.#rivals = new RivalWatch(this, this.#logger);
    this.#schedule();
    this.#rivals.look();
  }

  get isLeader(): boolean {
    return this.#phase === "leading" && this.restMs > 0;
  }

  /** Leads, or finishes what it had accepted: renews and writes. */
  get isActive(): boolean {
    return this.#phase === "leading" || this.#phase === "draining";
  }

  get token(): FencingToken {
    return this.#tenure.token;
  }

  get who() {
    return { role: this.registrar.role, member: this.registrar.member, token: this.#tenure.token };
  }

  get loss(): Loss | undefined {
    return this.#loss;
  }

  /** Fires once, when the leadership is given up or lost, whichever comes first. */
  get signal(): AbortSignal {
    return this.#left.signal;
  }

  /** Fires once nothing more can be written, not even what was accepted before. */
  get lostSignal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Until the lease ends unless it is renewed; negative after that. */
  get restMs(): number {
    return this.#tenure.sinceMs + this.#config.leaseMs - this.clock.monotonicMs();
  }

  get leaseMs(): number {
    return this.#config.leaseMs;
  }

  get renewDue(): boolean {
    return this.isLeader && this.clock.monotonicMs() - this.#tenure.sinceMs >= this.#config.renewMs;
  }

  /** A time limit inside what is left of the lease. */
  callMs(atMostMs = Number.POSITIVE_INFINITY): number {
    return Math.max(1, Math.ceil(Math.min(atMostMs, this.restMs)));
  }

  /** For new work. @throws the error of the loss */
  requireLeading(): void {
    this.#expireIfDue();
    if (this.#phase !== "leading") throw this.#loss?.error;
  }

  /** For work that was accepted before. @throws the error of the loss */
  requireActive(): void {
    this.requireHeld();
    if (!this.isActive) throw this.#loss?.error;
  }

  /** For the release, and for the new epoch that it may need. @throws the error of the loss */
  requireHeld(): void {
    this.#expireIfDue();
    if (this.#phase === "lost") throw this.#lost.signal.reason;
  }

  /** Never two at a time: a call during a renewal shares its result. */
  renew(): Promise<void> {
    return this.#renewals.renew();
  }

  /** A renewal was acknowledged. */
  renewed(tenure: Tenure): void {
    if (this.#phase === "lost") return;
    // Too late: this leadership may have been told as ended already, and must not come back.
    if (this.restMs <= 0) {
      this.#expire();
      return;
    }
    // A renewal whose answer was settled late may be of a pair that was replaced since.
    if (tenure.token.compareTo(this.#tenure.token) < 0) return;
    this.#tenure = tenure;
    this.#schedule();
  }

  /** Leaves on purpose: no new work from now on. What was accepted is finished under a lease that is kept alive. */
  leave(why: string, { reason, cause }: Leave = { reason: "resigned" }): void {
    this.#expireIfDue();
    if (this.#phase !== "leading") return;
    this.#phase = "draining";
    this.#schedule();
    this.#end(Loss.ended(this.who, reason, why, cause));
  }

  /**
   * Ends the drain: accepted writes that have not begun are refused, and nothing is renewed any more. The release comes
   * next, or the lease is to run out.
   */
  drained(): void {
    if (this.#phase !== "draining") return;
    this.#phase = "leaving";
    this.#renewals.stop();
  }

  /** The one way to `lost`. The first loss is the one that is told; work that was accepted is told this one. */
  lose(loss: Loss): void {
    if (this.#phase === "lost") return;
    this.#phase = "lost";
    this.#renewals.stop();
    this.#expiryTimer.cancel();
    this.#rivals.stop();
    if (this.#loss === undefined) this.#end(loss);
    this.queue.close(loss.error);
    this.#lost.abort(loss.error);
  }

  /** Ends a leadership that left, once its release is out. */
  left(): void {
    if (this.#loss !== undefined) this.lose(this.#loss);
  }

  /** The broker refused the pair: for a rival, for a process with the same member id, or after a timeout of its own. */
  fenced(cause: unknown): void {
    const { registrar, view } = this;
    const isTwin = registrar.isContested(view.state.registrationOf(registrar.member));
    this.lose(isTwin ? { reason: "fenced", error: registrar.duplicate() } : Loss.fenced(this.who, cause));
  }

  /** Draws the consequence of an error and gives back what to throw. */
  after(error: unknown): unknown {
    if (FencedError.is(error)) this.fenced(error);
    else if (KrabkaError.is(error) && error.code === "CLOSED") {
      this.lose(Loss.ended(this.who, "closed", "its transport was closed", error));
    }
    return this.#phase === "lost" ? this.#lost.signal.reason : error;
  }

  /**
   * True after an answer was lost, and while the newest pair has no grant: nothing else may be written then. `regain` puts
   * both right.
   */
  get mustRegain(): boolean {
    const { session } = this.reign;
    return session.mustRemint || !samePair(session.pair, this.token);
  }

  /**
   * Takes a new epoch, if nobody took over in between, and grants anew under it. For a session that had an answer lost: a
   * late request of the old epoch could otherwise land on the next transaction.
   *
   * @param state Read before the coordinator confirms this leader: the producer id in it is shut out, so a later one, which
   * may be a rightful successor's, must not get in here.
   * @returns what became of the unknown write before
   */
  async regain(state = this.view.state): Promise<WriteOutcome | undefined> {
    const { conditionalRemint } = this.transport.capabilities;
    try {
      if (!conditionalRemint.supported) this.lose(Loss.givenUp(this.who, conditionalRemint.reason));
      this.requireHeld();
      // Each of many waiting writes would else take an epoch, and there are 32,768 of a producer id.
      if (this.#regainPauseMs > 0) await pause(this.clock, this.#regainPauseMs, this.#lost.signal);
      this.requireHeld();
      const settled = await this.#remint();
      // A grant of somebody who has left meanwhile would only keep the others waiting.
      this.requireHeld();
      this.renewed(await this.reign.grant(state, [], { timeoutMs: this.callMs() }));
      this.#regainBackoff.reset();
      this.#regainPauseMs = 0;
      return settled;
    } catch (error) {
      this.#regainPauseMs = Math.ceil(Math.min(this.#regainBackoff.next(), this.#config.renewMs / 4));
      throw this.after(error);
    }
  }

  /**
   * `regain` for a task of the queue whose caller may give up first. The new epoch is taken all the same, and the tasks
   * that follow wait for it.
   *
   * @throws the limit's reason too
   */
  regainWithin(limit: Limit): Promise<WriteOutcome | undefined> {
    const regaining = this.regain();
    this.queue.hold(regaining);
    return limit.race(regaining);
  }

  #remint(): Promise<WriteOutcome | undefined> {
    const minted = this.reign.session.remint({ timeoutMs: this.callMs() }).finally(() => {
      this.#reminting = undefined;
    });
    this.#reminting = minted.catch(() => undefined);
    return minted;
  }

  #end(loss: Loss): void {
    this.#loss = loss;
    publish("krabka.lost", { ...this.who, reason: loss.reason });
    const { role, member, token } = this.who;
    this.#logger.info({ role, member, token: String(token), reason: loss.reason }, "the leadership ended");
    this.#left.abort(loss.error);
  }

  #expire(): void {
    this.lose(Loss.ended(this.who, "expired", "its lease ran out before a renewal was acknowledged"));
  }

  #expireIfDue(): void {
    if (this.#phase !== "lost" && this.restMs <= 0) this.#expire();
  }

  #schedule(): void {
    this.#expiryTimer.cancel();
    // Whole milliseconds: Node cuts off the rest, and a timer for less than one may find that no time has passed.
    this.#expiryTimer = this.clock.setTimer(Math.max(0, Math.ceil(this.restMs)), () => {
      // Node's timers may fire up to a millisecond early.
      if (this.restMs <= 0) this.#expire();
      else this.#schedule();
    });
    // Whoever renews by hand has gone when its leadership drains.
    const bySelf = this.#phase === "draining" || (this.#phase === "leading" && this.#autoRenew);
    if (bySelf) this.#renewals.schedule(this.#tenure.sinceMs + this.#config.renewMs - this.clock.monotonicMs());
    else this.#renewals.stop();
  }

  /** Asks the coordinator for the role's pair; if it is another one, the leadership is lost. */
  async verify(options: CallOptions): Promise<boolean> {
    const { session } = this.reign;
    const { pair } = session;
    const answer = await this.transport.describe(this.registrar.role, options);
    if (answer.pair !== undefined && samePair(answer.pair, pair)) return this.isLeader;
    // It may be the new epoch of this very leader, which only the end of its taking tells.
    await this.#reminting;
    if (!samePair(pair, session.pair)) return this.verify(options);
    const named = answer.pair === undefined ? "nobody" : `${answer.pair.producerId}:${answer.pair.epoch}`;
    this.fenced(new Error(`The coordinator names ${named}`));
    return this.isLeader;
  }
}
