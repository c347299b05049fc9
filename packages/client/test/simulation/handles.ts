import type { FencingToken } from "@krabka/core";
import type { Leadership } from "../../src/index.js";
import type { Mints } from "./mints.js";
import type { SimulatedMember } from "./simulated-member.js";

interface Handle {
  readonly leadership: Leadership;
  readonly member: SimulatedMember;
  token: FencingToken | undefined;
  fired: number;
  ended: boolean;
}

/** All leaderships of a run, from the first moment on, with what must hold for each of them and between them. */
export class Handles {
  readonly #mints: Mints;
  readonly #handles: Handle[] = [];
  /** The token of the newest pair that a leadership of the role showed. */
  readonly #tokens = new Map<string, FencingToken[]>();

  constructor(mints: Mints) {
    this.#mints = mints;
  }

  add(member: SimulatedMember, leadership: Leadership): void {
    const handle: Handle = { leadership, member, token: undefined, fired: 0, ended: false };
    leadership.signal.addEventListener("abort", () => {
      handle.fired += 1;
    });
    this.#handles.push(handle);
  }

  /** Those whose process runs and that lead by their own clock. */
  get awake(): readonly Leadership[] {
    return this.#handles
      .filter(({ leadership, member }) => member.isAwake && leadership.isLeader)
      .map(({ leadership }) => leadership);
  }

  memberOf(leadership: Leadership): SimulatedMember | undefined {
    return this.#handles.find((handle) => handle.leadership === leadership)?.member;
  }

  /** @throws {Error} */
  check(): void {
    for (const handle of this.#handles) this.#checkHandle(handle);
  }

  #checkHandle(handle: Handle): void {
    const { leadership, member } = handle;
    const who = `${leadership.member} in role ${leadership.role}`;
    if (handle.fired > 1) throw new Error(`the signal of ${who} fired ${handle.fired} times`);
    if (leadership.isLeader) {
      if (handle.ended) throw new Error(`the ended handle of ${who} leads again`);
      const deadlineMs = member.deadlineMs(leadership.role);
      if (member.clock.monotonicMs() >= deadlineMs) throw new Error(`${who} leads past its deadline ${deadlineMs}`);
      this.#checkToken(handle, who);
    } else {
      handle.ended = true;
      if (leadership.loss === undefined) return;
      if (handle.fired !== 1) throw new Error(`the signal of ${who} did not fire at its loss`);
    }
  }

  #checkToken(handle: Handle, who: string): void {
    const { role, token } = handle.leadership;
    const before = handle.token;
    if (before?.equals(token)) return;
    handle.token = token;
    if (before !== undefined && token.compareTo(before) < 0) {
      throw new Error(`the token of ${who} moved back from ${before} to ${token}`);
    }
    const tokens = this.#tokens.get(role) ?? [];
    this.#tokens.set(role, tokens);
    for (const other of tokens) {
      const byMint = Math.sign(this.#mints.compare(role, token, other));
      if (byMint !== token.compareTo(other)) {
        throw new Error(`token ${token} of ${who} is not in the order of mints with ${other}`);
      }
    }
    tokens.push(token);
  }
}
