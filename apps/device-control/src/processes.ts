import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";

type Waiter<Message> = { readonly wants: (message: Message) => boolean; readonly resolve: (message: Message) => void };

/** A child process that sends messages, which can be waited for. */
export class TalkingProcess<Message, Command = never> {
  readonly name: string;
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #waiters = new Set<Waiter<Message>>();

  constructor(name: string, module: string, args: readonly string[], onMessage: (message: Message) => void = () => {}) {
    this.name = name;
    this.#child = fork(fileURLToPath(new URL(module, import.meta.url)), args);
    this.exited = new Promise((resolve) => this.#child.once("exit", () => resolve()));
    this.#child.on("message", (message: Message) => {
      onMessage(message);
      for (const waiter of this.#waiters) {
        if (!waiter.wants(message)) continue;
        this.#waiters.delete(waiter);
        waiter.resolve(message);
      }
    });
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Resolves at the next message that `wants` accepts. */
  next(wants: (message: Message) => boolean): Promise<Message> {
    return new Promise((resolve) => this.#waiters.add({ wants, resolve }));
  }

  tell(command: Command): void {
    this.#child.send(command as object);
  }

  signal(name: "SIGKILL" | "SIGSTOP" | "SIGCONT"): void {
    this.#child.kill(name);
  }
}
