import type { KrabkaError, Leadership, Role } from "@krabka/client";
import { LIMIT, type Member } from "./stage.js";

/** "written", or the code for which a call was refused. */
export const resultOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => "written",
    (error: KrabkaError) => error.code ?? error.name,
  );

/** Leads, and stands for the role again when a term has ended. */
export class Incumbent {
  readonly member: Member;
  readonly #role: Role;
  #leadership: Leadership | undefined;

  constructor(member: Member, role: Role) {
    this.member = member;
    this.#role = role;
  }

  async lead(): Promise<Leadership> {
    if (this.#leadership === undefined || this.#leadership.loss !== undefined) {
      this.#leadership = await this.member.client.acquire(this.#role, this.member.id, LIMIT);
    }
    return this.#leadership;
  }

  /** Writes in this term or, where the term turns out to be at its end, in the next. */
  async write(topic: string, value: string): Promise<void> {
    for (;;) {
      const result = await resultOf((await this.lead()).write({ topic, value }));
      if (result === "written") return;
      if (result === "UNKNOWN_OUTCOME") throw new Error(`Whether ${value} was written is not known`);
    }
  }
}
