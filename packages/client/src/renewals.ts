import { type Logger, publish } from "./events.js";
import type { Tenancy } from "./tenancy.js";

/** Renews the lease of a tenancy, when asked to and by itself. */
export class Renewals {
  readonly #tenancy: Tenancy;
  readonly #renewMs: number;
  readonly #logger: Logger;
  #timer = { cancel() {} };
  #running: Promise<void> | undefined;

  constructor(tenancy: Tenancy, renewMs: number, logger: Logger) {
    this.#tenancy = tenancy;
    this.#renewMs = renewMs;
    this.#logger = logger;
  }

  /** Never two at a time: a call during a renewal shares its result. */
  renew(): Promise<void> {
    this.#running ??= this.#tenancy.queue
      .run(() => this.#renew(), { priority: "urgent" })
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }

  /** Renews by itself after `delayMs`, and after failures again and again. */
  schedule(delayMs: number): void {
    this.#timer.cancel();
    this.#timer = this.#tenancy.clock.setTimer(Math.max(0, delayMs), () => this.#renewByItself());
  }

  /** Renews no more by itself. */
  stop(): void {
    this.#timer.cancel();
  }

  #renewByItself(): void {
    this.renew().catch((error: unknown) => {
      const { isActive, registrar, restMs } = this.#tenancy;
      if (!isActive) return;
      const { role, member } = registrar;
      this.#logger.warn({ role, member, err: error }, "a renewal failed");
      // Several tries before the lease ends, however short it is.
      this.schedule(Math.max(5, Math.min(this.#renewMs, restMs) / 4));
    });
  }

  async #renew(): Promise<void> {
    const tenancy = this.#tenancy;
    tenancy.requireActive();
    const startedAtMs = tenancy.clock.monotonicMs();
    if (tenancy.mustRegain) await tenancy.regain();
    else await this.#renewLease();
    tenancy.requireHeld();
    publish("krabka.renewed", { ...tenancy.who, durationMs: tenancy.clock.monotonicMs() - startedAtMs });
    if (tenancy.transport.capabilities.fencedAppend.supported) void this.#checkOwnPair();
  }

  async #renewLease(): Promise<void> {
    const tenancy = this.#tenancy;
    try {
      tenancy.renewed(await tenancy.reign.renew(tenancy.token, { timeoutMs: tenancy.callMs(this.#renewMs) }));
    } catch (error) {
      throw tenancy.after(error);
    }
  }

  /**
   * Whoever minted without writing to the partition (a rival just before its grant, an admin's tool) stops this leader's
   * transactions but not its appends. So with each renewal the coordinator is asked, or the role would be held by a
   * leader that cannot write.
   */
  async #checkOwnPair(): Promise<void> {
    const tenancy = this.#tenancy;
    try {
      await tenancy.verify({ timeoutMs: tenancy.callMs(this.#renewMs) });
    } catch (error) {
      const { role, member } = tenancy.registrar;
      this.#logger.debug({ role, member, err: error }, "the coordinator could not be asked");
    }
  }
}
