import type { Clock, FencingToken, Timer } from "@krabka/core";
import { invalid, LocalError } from "./errors.js";
import type { CallOptions, CoordinationService, Lease } from "./service.js";
import { systemClock } from "./system-clock.js";

export interface LeaseKeeperOptions {
  readonly leaseId: string;
  readonly owner: string;
  readonly ttlMs: number;
  /** Pause between the end of one renewal and the start of the next. @default a third of `ttlMs` */
  readonly renewMs?: number | undefined;
  /** @default the machine's */
  readonly clock?: Clock | undefined;
}

const NOT_IN_TIME = "was not renewed in time";

const lost = (leaseId: string, why: string): LocalError => new LocalError("LOST", `Lease ${leaseId} ${why}`);

/**
 * Keeps a lease alive, one renewal at a time. It counts `ttlMs` from before the call that the authority answered, so it
 * stops claiming the lease before the authority gives it to somebody else. Lost once is lost for good.
 */
export class LeaseKeeper {
  readonly #service: CoordinationService;
  readonly #clock: Clock;
  readonly #ttlMs: number;
  readonly #renewMs: number;
  readonly #lost = new AbortController();
  readonly lease: Lease;
  #deadlineMs: number;
  #renewing: Promise<void> | undefined;
  #renewTimer: Timer | undefined;
  #deadlineTimer: Timer | undefined;

  private constructor(service: CoordinationService, lease: Lease, startedMs: number, clock: Clock, renewMs: number) {
    this.#service = service;
    this.#clock = clock;
    this.#ttlMs = lease.ttlMs;
    this.#renewMs = renewMs;
    this.lease = lease;
    this.#deadlineMs = startedMs + lease.ttlMs;
    this.#armDeadline();
    this.#armRenewal();
  }

  /** @returns the keeper, or who holds the lease instead. @throws {LocalError} as `acquireLease` */
  static async acquire(
    service: CoordinationService,
    options: LeaseKeeperOptions,
    callOptions: CallOptions = {},
  ): Promise<
    | { readonly success: true; readonly keeper: LeaseKeeper }
    | { readonly success: false; readonly holder: Lease | undefined }
  > {
    const { leaseId, owner, ttlMs, clock = systemClock, renewMs = Math.max(1, Math.floor(ttlMs / 3)) } = options;
    if (!(renewMs >= 1 && renewMs < ttlMs)) throw invalid("renewMs", `1 or more and less than ttlMs ${ttlMs}`, renewMs);
    const startedMs = clock.monotonicMs();
    const result = await service.acquireLease(leaseId, owner, ttlMs, callOptions);
    if (!result.success) return result;
    return { success: true, keeper: new LeaseKeeper(service, result.lease, startedMs, clock, renewMs) };
  }

  /** Fires once, when the lease is gone; the reason is a `LocalError` with code `LOST`, or `CLOSED` after a release. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Judged at this very moment, also in a process that was stopped meanwhile. */
  get isHeld(): boolean {
    return !this.#lost.signal.aborted && this.#clock.monotonicMs() < this.#deadlineMs;
  }

  /** @throws {LocalError} `LOST` */
  get fencingToken(): FencingToken {
    if (this.isHeld) return this.lease.fencingToken;
    throw new LocalError("LOST", `Lease ${this.lease.leaseId} is not held any more`, {
      cause: this.#lost.signal.reason,
    });
  }

  /** Gives the lease back. Nothing of it is claimed from the call on. */
  async release(options: CallOptions = {}): Promise<void> {
    this.#end(new LocalError("CLOSED", `Lease ${this.lease.leaseId} was released`));
    await this.#renewing;
    await this.#service.releaseLease(this.lease.leaseId, this.lease.owner, this.lease.epoch, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  async #renew(): Promise<void> {
    const startedMs = this.#clock.monotonicMs();
    const { leaseId, owner, epoch } = this.lease;
    try {
      const result = await this.#service.renewLease(leaseId, owner, epoch, this.#ttlMs, { signal: this.signal });
      if (!result.success) this.#end(lost(leaseId, `is held by ${result.holder?.owner ?? "nobody"} now`));
      // Too late, whatever the authority says: somebody may have been told already that it is not held.
      else if (!this.isHeld) this.#end(lost(leaseId, NOT_IN_TIME));
      else this.#deadlineMs = startedMs + this.#ttlMs;
    } catch {
      // The next renewal tries again; the deadline tells when there is no point any more.
    }
  }

  #armRenewal(): void {
    this.#renewTimer = this.#clock.setTimer(this.#renewMs, () => {
      this.#renewing = this.#renew().finally(() => {
        this.#renewing = undefined;
        if (this.#lost.signal.aborted) return;
        this.#armRenewal();
      });
    });
  }

  #armDeadline(): void {
    const leftMs = Math.max(0, this.#deadlineMs - this.#clock.monotonicMs());
    this.#deadlineTimer = this.#clock.setTimer(leftMs, () => {
      if (this.isHeld) this.#armDeadline();
      else this.#end(lost(this.lease.leaseId, NOT_IN_TIME));
    });
  }

  #end(reason: LocalError): void {
    this.#renewTimer?.cancel();
    this.#deadlineTimer?.cancel();
    this.#lost.abort(reason);
  }
}
