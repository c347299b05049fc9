import { FencedError } from "@krabka/core";
import type { Logger } from "./events.js";
import type { Limit } from "./limits.js";
import type { Tenancy } from "./tenancy.js";

/** How long the end of a leadership waits for its ghost of a registration to be removed. */
const GHOST_MS = 1_000;

/** Writes the record that gives the role up. */
export type Goodbye = (limits: { readonly timeoutMs: number; readonly signal: AbortSignal }) => Promise<void>;

/** How a leadership goes: by its own goodbye or by a loss, it lets go of the session and the view at the end. */
export class Departure {
  /** Resolves once the leadership is lost and nothing of it is under way any more. */
  readonly over: Promise<void>;
  readonly #tenancy: Tenancy;
  readonly #logger: Logger;
  #underWay: Promise<void> | undefined;
  #finish: Promise<void> | undefined;
  #released = false;

  constructor(tenancy: Tenancy, logger: Logger) {
    this.#tenancy = tenancy;
    this.#logger = logger;
    this.over = new Promise((resolve) => {
      const onLost = () => void this.finished().then(resolve);
      if (tenancy.lostSignal.aborted) onLost();
      else tenancy.lostSignal.addEventListener("abort", onLost, { once: true });
    });
  }

  /** One at a time. Whoever asks for another waits for it, within limits of its own, and tries again if it failed. */
  async begin(why: string, limit: Limit, goodbye: Goodbye): Promise<void> {
    try {
      while (this.#underWay !== undefined) await limit.race(this.#underWay.catch(() => undefined));
    } catch (error) {
      this.#tenancy.drained();
      throw error;
    }
    this.#underWay = this.#sayGoodbye(why, limit, goodbye).finally(() => {
      this.#underWay = undefined;
    });
    await this.#underWay;
  }

  /** Lets go of the session and the view, once. */
  finished(): Promise<void> {
    this.#finish ??= (async () => {
      const { queue, reign, view } = this.#tenancy;
      await queue.idle();
      await reign.session.close();
      await this.#removeGhost();
      view.close();
    })();
    return this.#finish;
  }

  async #sayGoodbye(why: string, limit: Limit, goodbye: Goodbye): Promise<void> {
    try {
      this.#tenancy.leave(why);
      // Behind all accepted writes: in the log the release follows the last of them.
      await this.#tenancy.queue.run(() => this.#release(limit, goodbye), {
        signal: limit.signal,
      });
    } catch (error) {
      // Lost meanwhile: somebody else leads or may lead, and nothing is left to give up.
      if (!this.#tenancy.lostSignal.aborted) throw error;
    } finally {
      this.#tenancy.drained();
    }
    this.#tenancy.left();
    await this.finished();
  }

  async #release(limit: Limit, goodbye: Goodbye): Promise<void> {
    this.#tenancy.requireHeld();
    limit.throwIfReached();
    this.#tenancy.drained();
    try {
      // The release comes under the pair whose answers are all known.
      if (this.#tenancy.mustRegain) await this.#tenancy.regainWithin(limit);
      await goodbye({ signal: limit.signal, timeoutMs: this.#tenancy.callMs(limit.restMs) });
      this.#released = true;
    } catch (error) {
      throw FencedError.is(error) ? this.#tenancy.after(error) : error;
    }
  }

  /** After a loss the own registration may still stand, and would cost the others a stagger. */
  async #removeGhost(): Promise<void> {
    const { view, registrar } = this.#tenancy;
    const { role, member } = registrar;
    const entry = view.state.registrationOf(member);
    if (this.#released || entry === undefined || registrar.isContested(entry)) return;
    try {
      await registrar.withdraw(GHOST_MS);
    } catch (error) {
      this.#logger.debug({ role, member, err: error }, "the registration was not taken back");
    }
  }
}
