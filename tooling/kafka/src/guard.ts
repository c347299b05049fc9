import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { mkdir, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex, Writable } from "node:stream";

/**
 * Waits for the end of its standard input, a pipe that only the owner holds. The kernel closes it however the owner
 * ends, SIGKILL included. Then kills every process of the folder and removes the folder.
 *
 * The rename comes first: a process that signs in later fails to, and never becomes a broker.
 */
const GUARD = `
trap '' INT TERM HUP
read -r _
mv "$1/processes" "$1/ended"
for entry in "$1/ended"/*; do
  [ -e "$entry" ] && kill -KILL "\${entry##*/}"
done
tries=0
for entry in "$1/ended"/*; do
  while [ -e "$entry" ] && kill -0 "\${entry##*/}" && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
done
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
`;

/** Signs in by a file named after the process id, which \`exec\` keeps, so that no process is ever unknown to the guard. */
const SIGN_IN = ': >"$0/$$" && exec "$@"';

/** A temporary folder and the processes that run in it. Both end with this process, however it ends. */
export class Guard {
  readonly folder: string;
  readonly #process: ChildProcess;
  readonly #lifeline: Writable;

  private constructor(folder: string, process: ChildProcess, lifeline: Writable) {
    this.folder = folder;
    this.#process = process;
    this.#lifeline = lifeline;
  }

  static async open(): Promise<Guard> {
    const folder = await mkdtemp(join(tmpdir(), "krabka-kafka-"));
    await mkdir(join(folder, "processes"));
    // A session of its own: Ctrl-C in a terminal reaches every process of the foreground group.
    const guard = spawn("/bin/sh", ["-c", GUARD, "krabka-kafka-guard", folder], {
      cwd: "/",
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    // A pipe that is not awaited must not keep a finished program running.
    guard.unref();
    (guard.stdin as unknown as Duplex & { unref(): void }).unref();
    return new Guard(folder, guard, guard.stdin);
  }

  /** Starts a process that the guard ends with this one. Its output goes to the open file `output`. */
  spawn(command: string, args: readonly string[], output: number): ChildProcess {
    const processes = join(this.folder, "processes");
    const child = spawn("/bin/sh", ["-c", SIGN_IN, processes, command, ...args], {
      cwd: this.folder,
      detached: true,
      stdio: ["ignore", output, output],
    });
    child.unref();
    child.once("exit", () => rmSync(join(processes, String(child.pid)), { force: true }));
    return child;
  }

  /** Kills the processes and removes the folder. */
  async close(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.ref();
    this.#lifeline.end();
    await ended;
  }
}
