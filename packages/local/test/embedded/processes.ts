import { type ChildProcess, fork } from "node:child_process";
import { basename, isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

/** Makes a script, by default of this folder, runnable by a plain Node process, from the sources. */
export async function bundle(script: string, into: string): Promise<string> {
  const outfile = join(into, basename(script).replace(/\.ts$/, ".mjs"));
  await build({
    entryPoints: [isAbsolute(script) ? script : path(script)],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    alias: {
      "@krabka/core": path("../../../core/src/index.ts"),
      "@krabka/client": path("../../../client/src/index.ts"),
      "@krabka/local": path("../../src/index.ts"),
    },
    logLevel: "error",
  });
  return outfile;
}

export interface Message {
  readonly kind: string;
  readonly text: string;
}

/** A child process that says things. */
export class Talker {
  readonly said: Message[] = [];
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #listeners = new Set<() => void>();

  constructor(script: string, args: readonly string[], execArgv: readonly string[] = []) {
    this.#child = fork(script, args, { execArgv: [...execArgv] });
    this.exited = new Promise((resolve) => this.#child.once("exit", () => resolve()));
    this.#child.on("message", (message: Message) => {
      this.said.push(message);
      for (const listener of [...this.#listeners]) listener();
    });
    void this.exited.then(() => {
      for (const listener of [...this.#listeners]) listener();
    });
  }

  get hasExited(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** The next message of a kind from the n-th message on, now or later. */
  async hear(kind: string, from = 0): Promise<Message> {
    for (;;) {
      const found = this.said.slice(from).find((message) => message.kind === kind);
      if (found !== undefined) return found;
      if (this.hasExited) throw new Error(`The process ended and never said "${kind}": ${JSON.stringify(this.said)}`);
      await new Promise<void>((resolve) => {
        const listener = (): void => {
          this.#listeners.delete(listener);
          resolve();
        };
        this.#listeners.add(listener);
      });
    }
  }

  tell(what: string): void {
    this.#child.send(what);
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#child.kill(name);
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.exited;
  }
}
