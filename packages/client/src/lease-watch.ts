import type { Clock, HeldLease, RoleState, RosterEntry } from "@krabka/core";

/** A pair of instants that belong together: the log's clock and this process's monotonic clock. */
interface LogInstant {
  readonly logAtMs: number;
  readonly monotonicAtMs: number;
}

/**
 * Tells what time it is for the holder of a lease, without trusting that two machines' wall clocks agree.
 *
 * The holder wrote its wall clock into the record; what has passed since is measured by this process: at least as long as
 * the record has been here, or longer where the log itself stamps records (`LogAppendTime`) and so tells how old an old
 * record is. So a member whose clock is an hour fast deposes nobody, and one that is an hour slow does not wait for it.
 * Only where the log does not stamp, a record that was old on arrival, or nothing has been heard for one own lease, the
 * local wall clock has a say. None of this is about safety: a wrong answer costs an epoch.
 */
export class LeaseWatch {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  #heardOffset = -1n;
  /** Of the newest uncommitted record since then. */
  #lifeOffset = -1n;
  #heardAtMs = 0;
  /** The holder's clock when it wrote what was heard. */
  #heardGrantedAtMs = 0n;
  #heardLive = false;
  #logInstant: LogInstant | undefined;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  /** A new lease record is in the state. @param live False while the log is being replayed. */
  heard(lease: HeldLease, live: boolean): void {
    if (lease.offset === this.#heardOffset) return;
    this.#heardOffset = lease.offset;
    this.#lifeOffset = -1n;
    this.#heardGrantedAtMs = lease.grantedAtMs;
    this.#heardAtMs = this.#clock.monotonicMs();
    this.#heardLive = live;
  }

  /**
   * A record of the holder's is not committed yet. It shows that the holder lived when it wrote it, which its own clock tells
   * unless that was set. A holder that died in the middle of a transaction leaves the record to be seen, for the first
   * time perhaps when its lease is over, and then again and again until the broker ends the transaction.
   */
  signOfLife({ offset, grantedAtMs }: { readonly offset: bigint; readonly grantedAtMs: bigint }): void {
    if (offset <= this.#heardOffset || offset <= this.#lifeOffset) return;
    const nowMs = this.#clock.monotonicMs();
    const writtenAtMs = this.#heardAtMs + Number(grantedAtMs - this.#heardGrantedAtMs);
    const isKnown = this.#heardLive && writtenAtMs >= this.#heardAtMs && writtenAtMs <= nowMs;
    this.#lifeOffset = offset;
    this.#heardGrantedAtMs = grantedAtMs;
    this.#heardAtMs = isKnown ? writtenAtMs : nowMs;
    this.#heardLive = true;
  }

  /** The log just stamped a record with this instant. */
  logTime(logAtMs: number): void {
    this.#logInstant = { logAtMs, monotonicAtMs: this.#clock.monotonicMs() };
  }

  /** The instant to evaluate `state` at, ms since 1970 on the clock of whoever wrote the anchor. */
  nowMs(state: RoleState, own: { entry: RosterEntry | undefined; registeredAtMonotonicMs: number }): bigint {
    const { lease } = state;
    const monotonicMs = this.#clock.monotonicMs();
    if (lease === undefined) {
      if (own.entry === undefined) return BigInt(Math.floor(this.#clock.wallMs()));
      return own.entry.registeredAtMs + BigInt(Math.floor(monotonicMs - own.registeredAtMonotonicMs));
    }
    const hereMs = monotonicMs - this.#heardAtMs;
    const nowMs =
      lease.grantedAtMs + BigInt(Math.floor(Math.max(hereMs, this.#heardLive ? 0 : this.#ageMs(lease, monotonicMs))));
    const wallHasSay = hereMs >= this.#leaseMs || (!this.#heardLive && !this.#isStamped(lease));
    if (!wallHasSay) return nowMs;
    const wallMs = BigInt(Math.floor(this.#clock.wallMs()));
    return wallMs > nowMs ? wallMs : nowMs;
  }

  #isStamped(lease: HeldLease): boolean {
    return lease.appendedAtMs !== undefined && this.#logInstant !== undefined;
  }

  #ageMs(lease: HeldLease, monotonicMs: number): number {
    if (lease.appendedAtMs === undefined || this.#logInstant === undefined) return 0;
    return this.#logInstant.logAtMs + (monotonicMs - this.#logInstant.monotonicAtMs) - lease.appendedAtMs;
  }
}
