import { type ChildProcess, fork } from "node:child_process";

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
