import { randomUUID } from "node:crypto";
import { CoordinationClient, type Leadership, MemberId, Role } from "@krabka/client";
import type { Transport } from "@krabka/core";

const MEMBERS = 4;

/** Members of one role, each with a client of its own; the next in line takes over when the leader resigns. */
export class HandoverLine {
  readonly #clients: readonly CoordinationClient[];
  readonly #role = Role.of(`handover-${randomUUID()}`);
  readonly #line: { readonly index: number; readonly won: Promise<{ leadership: Leadership; atMs: number }> }[] = [];
  #members = 0;

  constructor(makeTransport: () => Transport) {
    this.#clients = Array.from({ length: MEMBERS }, () => new CoordinationClient(makeTransport(), { leaseMs: 30_000 }));
  }

  async prepare(): Promise<void> {
    for (let index = 0; index < MEMBERS; index++) await this.#enter(index);
  }

  /** Milliseconds from the call of `resign` to the moment at which the successor's `acquire` has resolved. */
  async once(): Promise<number> {
    const first = this.#line.shift();
    const { leadership } = await (first as NonNullable<typeof first>).won;
    const next = this.#line[0] as NonNullable<typeof first>;
    const startedAtMs = performance.now();
    const resigned = leadership.resign();
    const { atMs } = await next.won;
    await resigned;
    await this.#enter((first as NonNullable<typeof first>).index);
    return atMs - startedAtMs;
  }

  async close(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
  }

  async #enter(index: number): Promise<void> {
    const client = this.#clients[index] as CoordinationClient;
    this.#members += 1;
    const name = `member-${this.#members}`;
    const won = client
      .acquire(this.#role, MemberId.of(name))
      .then((leadership) => ({ leadership, atMs: performance.now() }));
    won.catch(() => undefined);
    this.#line.push({ index, won });
    for await (const { roster } of client.observe(this.#role)) {
      if (roster.some(({ member }) => member === name)) return;
    }
  }
}
