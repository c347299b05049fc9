import { type HeldLease, samePair } from "@krabka/core";
import type { Logger } from "./events.js";
import { Loss } from "./loss.js";
import type { Tenancy } from "./tenancy.js";

/** Looks for a later leader in the log, and draws the consequence for a tenancy. */
export class RivalWatch {
  readonly #tenancy: Tenancy;
  readonly #logger: Logger;
  readonly #stop: () => void;
  #checking = false;

  constructor(tenancy: Tenancy, logger: Logger) {
    this.#tenancy = tenancy;
    this.#logger = logger;
    this.#stop = tenancy.view.onChange(() => this.look());
  }

  stop(): void {
    this.#stop();
  }

  /** A record came in: does the log show a later leader? */
  look(): void {
    const { queue, isActive } = this.#tenancy;
    if (!isActive || this.#checking || this.#rival() === undefined) return;
    this.#checking = true;
    queue
      .run(() => this.#check(), { priority: "urgent" })
      .catch((error: unknown) => {
        if (!this.#tenancy.isActive) return;
        const { role, member } = this.#tenancy.registrar;
        this.#logger.warn({ role, member, err: error }, "a rival's grant could not be checked");
      })
      .finally(() => {
        this.#checking = false;
      });
  }

  #rival(): HeldLease | undefined {
    const { view, token, reign } = this.#tenancy;
    const { lease } = view.state;
    if (lease === undefined || lease.token.compareTo(token) <= 0) return undefined;
    // An own grant, acknowledged or not: the coordinator counts the epochs of one id upwards, and gave this session its newest.
    const { producerId, epoch } = reign.session.pair;
    return lease.token.producerId === producerId && lease.token.epoch <= epoch ? undefined : lease;
  }

  async #check(): Promise<void> {
    const tenancy = this.#tenancy;
    const rival = this.#rival();
    if (rival === undefined || !tenancy.isActive) return;
    // It may be a stale one, appended late. Where nobody can be asked, or nothing be done about it, the log has its way.
    const { describe, conditionalRemint } = tenancy.transport.capabilities;
    if (!describe.supported || !conditionalRemint.supported) {
      tenancy.lose(Loss.evicted(tenancy.who, rival));
      return;
    }
    const { state } = tenancy.view;
    const { pair } = await tenancy.transport.describe(tenancy.registrar.role, { timeoutMs: tenancy.callMs() });
    if (pair === undefined || !samePair(pair, tenancy.reign.session.pair)) {
      tenancy.lose(Loss.evicted(tenancy.who, rival));
      return;
    }
    // It was appended late, by a member that had minted before this one. A new epoch puts the terms right; a second grant
    // under the same pair would keep the pair's old term in the eyes of all others.
    await tenancy.regain(state);
  }
}
