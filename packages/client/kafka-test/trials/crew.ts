import { setTimeout as sleep } from "node:timers/promises";
import type { Leadership, MemberId, Role } from "@krabka/client";
import type { Member, Stage } from "./stage.js";
import { until } from "./stage.js";

/** Members that campaign for one role, and who of them leads. */
export class Crew {
  readonly members: readonly Member[];
  /** Campaigns that ended although nobody stopped them. There should be none. */
  readonly deserters: unknown[] = [];
  /** Every term, in the order in which they were won. */
  readonly terms: Leadership[] = [];
  readonly #stage: Stage;
  readonly #role: Role;
  readonly #stop = new AbortController();
  readonly #campaigns: readonly Promise<unknown>[];

  private constructor(stage: Stage, role: Role, members: readonly Member[]) {
    this.#stage = stage;
    this.#role = role;
    this.members = members;
    const { signal } = this.#stop;
    const lead = async (leadership: Leadership, over: AbortSignal): Promise<void> => {
      this.terms.push(leadership);
      if (!over.aborted) await new Promise((resolve) => over.addEventListener("abort", resolve));
    };
    this.#campaigns = members.map(({ client, id }) =>
      client.campaign(role, id, lead, { signal }).then(
        () => signal.aborted || this.deserters.push(id),
        (error: unknown) => this.deserters.push(error),
      ),
    );
  }

  /** Resolves when all are registered and one leads. */
  static async gather(stage: Stage, role: Role, size: number, leaseMs: number): Promise<Crew> {
    const members = await Promise.all(Array.from({ length: size }, (_, n) => stage.member(`m${n}`, { leaseMs })));
    const crew = new Crew(stage, role, members);
    for (const { id } of members) await stage.registered(role, id);
    await crew.leader();
    return crew;
  }

  /** Waits for a member that leads by its own clock. */
  async leader(): Promise<Leadership> {
    await until("a leader", () => this.terms.some(({ isLeader }) => isLeader));
    return this.terms.find(({ isLeader }) => isLeader) as Leadership;
  }

  /** Resolves when a member leads or stands by. A rival's grant may have taken a leader's registration out. */
  async present(member: MemberId): Promise<void> {
    const leads = until(`${member} to lead`, () => this.terms.some((term) => term.member === member && term.isLeader));
    await Promise.race([leads, this.#stage.registered(this.#role, member)]);
  }

  /** Has whoever leads write until one write is committed. @returns how long that took, in ms */
  async untilWritten(topic: string): Promise<number> {
    const startedAtMs = performance.now();
    for (; ; await sleep(20)) {
      const leadership = await this.leader();
      const written = await leadership.write({ topic, value: String(leadership.member) }).then(
        () => true,
        () => false,
      );
      if (written) return performance.now() - startedAtMs;
    }
  }

  async dismiss(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#campaigns);
  }
}
