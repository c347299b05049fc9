import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Role } from "@krabka/client";
import type { FaultProxy } from "@krabka/tooling-kafka";

export interface MemberProcessOptions {
  readonly transport: string;
  readonly bootstrap: string;
  readonly member: string;
  readonly roles: readonly Role[];
  readonly leaseMs: number;
  readonly requestTimeoutMs: number;
}

/** What a member in a process of its own tells. */
export type Told =
  | { readonly kind: "leads"; readonly role: Role; readonly token: string }
  | { readonly kind: "lost"; readonly role: Role; readonly reason: string; readonly message: string }
  | { readonly kind: "wrote"; readonly role: Role; readonly value: string; readonly result: string }
  /** A rejection or exception that nobody handled. */
  | { readonly kind: "unhandled"; readonly message: string };

type Kind = Told["kind"];
const LIMIT_MS = 40_000;

/** A campaign in a process that can be stopped at any instruction. It runs the built packages. */
export class MemberProcess {
  readonly proxy: FaultProxy;
  readonly #child: ChildProcess;
  readonly #told: Told[] = [];
  readonly #read = new Map<Kind, number>();
  readonly #waiting = new Set<() => void>();

  private constructor(child: ChildProcess, proxy: FaultProxy) {
    this.#child = child;
    this.proxy = proxy;
    child.on("message", (message: Told) => {
      this.#told.push(message);
      this.#wakeAll();
    });
    child.on("exit", () => this.#wakeAll());
  }

  static start(options: MemberProcessOptions, proxy: FaultProxy): MemberProcess {
    const script = fileURLToPath(new URL("campaigning-member.mjs", import.meta.url));
    return new MemberProcess(fork(script, [JSON.stringify(options)]), proxy);
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** All that was told of a kind so far. */
  all<K extends Kind>(kind: K): readonly Extract<Told, { kind: K }>[] {
    return this.#told.filter((told): told is Extract<Told, { kind: K }> => told.kind === kind);
  }

  /** The next of a kind that was not given yet. */
  async next<K extends Kind>(kind: K): Promise<Extract<Told, { kind: K }>> {
    const index = this.#read.get(kind) ?? 0;
    this.#read.set(kind, index + 1);
    const giveUpAtMs = performance.now() + LIMIT_MS;
    for (;;) {
      const told = this.all(kind)[index];
      if (told !== undefined) return told;
      if (!this.isAlive) throw new Error(`The member's process ended before it told "${kind}"`);
      const restMs = giveUpAtMs - performance.now();
      if (restMs <= 0) throw new Error(`The member did not tell "${kind}" for ${LIMIT_MS} ms`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, restMs);
        this.#waiting.add(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #wakeAll(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /** Has it write a record as the leader that it is, or last was. `wrote` tells the result: "written", or a code. */
  write(role: Role, topic: string, value: string): void {
    this.#child.send({ role, topic, value });
  }

  /** SIGSTOP: the whole process stands still. */
  stop(): void {
    this.#child.kill("SIGSTOP");
  }

  continue(): void {
    this.#child.kill("SIGCONT");
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}
