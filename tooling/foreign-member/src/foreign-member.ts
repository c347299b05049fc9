import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { compile } from "./compile.js";
import { type DecodedRecords, type ForeignEvent, parseEvent } from "./foreign-event.js";

export interface ForeignMemberOptions {
  readonly bootstrap: string;
  /** The coordination topic; it has to exist. @default "__coordination_state" */
  readonly topic?: string;
  readonly role: string;
  /** Whose name it competes under. Without one it only reads. @default none */
  readonly member?: string;
  readonly leaseMs?: number;
  readonly renewMs?: number;
  readonly staggerMs?: number;
}

type EventOf<Kind extends ForeignEvent["event"]> = Extract<ForeignEvent, { event: Kind }>;

interface Waiter {
  readonly kinds: ReadonlySet<string>;
  readonly resolve: (event: ForeignEvent) => void;
  readonly reject: (error: Error) => void;
}

const DEFAULT_LEASE_MS = 3_000;
const JVM_OPTIONS = [
  "-Xmx128m",
  "-XX:+UseSerialGC",
  "-XX:TieredStopAtLevel=1",
  "-Xshare:auto",
  "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
];

/**
 * A member of another implementation, in a process of its own that ends with this one. Every wait rejects, and so does
 * `close`, when it gave up because of a record that the wire format does not allow.
 */
export class ForeignMember implements AsyncDisposable {
  /** All that it has told so far. */
  readonly events: ForeignEvent[] = [];
  readonly #child: ChildProcess;
  readonly #unread: ForeignEvent[] = [];
  readonly #waiters = new Set<Waiter>();
  readonly #ended: Promise<void>;
  #complaint = "";
  #killed = false;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#complaint += text;
    });
    // An end of the program while a command is on its way is told by its exit.
    child.stdin?.on("error", () => undefined);
    if (child.stdout !== null) createInterface(child.stdout).on("line", (line) => this.#hear(parseEvent(line)));
    this.#ended = once(child, "close").then(() => {
      for (const { reject } of this.#waiters) reject(this.#failure);
      this.#waiters.clear();
    });
  }

  /** Starts to compete, or to read where no member is named. @throws Error saying what to install when Java is missing */
  static async start(options: ForeignMemberOptions): Promise<ForeignMember> {
    const { java, classPath } = await compile(process.env);
    const { bootstrap, topic = "__coordination_state", role, member, leaseMs = DEFAULT_LEASE_MS } = options;
    const { renewMs = Math.floor(leaseMs / 3), staggerMs = Math.floor(leaseMs / 6) } = options;
    const mode = member === undefined ? "reader" : "member";
    const timings = [leaseMs, renewMs, staggerMs].map(String);
    const args = [mode, bootstrap, topic, role, member ?? "", ...timings];
    const child = spawn(java, [...JVM_OPTIONS, "-cp", classPath, "ForeignMember", ...args], { stdio: "pipe" });
    return new ForeignMember(child);
  }

  /** The next event of one of these kinds that no call has returned yet. @throws Error once the program ended */
  next<Kind extends ForeignEvent["event"]>(...kinds: Kind[]): Promise<EventOf<Kind>> {
    const wanted: ReadonlySet<string> = new Set(kinds);
    const index = this.#unread.findIndex(({ event }) => wanted.has(event));
    if (index >= 0) return Promise.resolve(this.#unread.splice(index, 1)[0] as EventOf<Kind>);
    if (this.#hasEnded) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#waiters.add({ kinds: wanted, resolve: (event) => resolve(event as EventOf<Kind>), reject });
    });
  }

  /** Writes one record in a transaction of the role, if it leads. */
  write(topic: string, value: string): Promise<EventOf<"written" | "refused">> {
    this.#tell(`write ${topic} ${value}`);
    return this.next("written", "refused");
  }

  /** Writes with the producer of its last leadership, whether it leads or not. */
  staleWrite(topic: string, value: string): Promise<EventOf<"written" | "refused">> {
    this.#tell(`stale-write ${topic} ${value}`);
    return this.next("written", "refused");
  }

  /** Releases the role and takes its registration back; stays out until `compete`. */
  resign(): Promise<EventOf<"resigned" | "refused">> {
    this.#tell("resign");
    return this.next("resigned", "refused");
  }

  /** Does nothing any more, as if it hung, until `compete`; it still takes `staleWrite`. */
  async silence(): Promise<void> {
    this.#tell("silence");
    await this.next("silent");
  }

  /** Registers at the end of the line and competes. */
  compete(): void {
    this.#tell("compete");
  }

  /** What it has decoded up to the log's present end. */
  report(): Promise<DecodedRecords> {
    this.#tell("report");
    return this.next("report");
  }

  /** SIGKILL; resolves when the process is gone. */
  async kill(): Promise<void> {
    this.#killed = true;
    this.#child.kill("SIGKILL");
    await this.#ended;
  }

  /**
   * Ends the program without a release. Further calls do the same as the first.
   *
   * @throws Error with what it said, when it had ended by itself
   */
  async close(): Promise<void> {
    this.#tell("quit");
    this.#child.stdin?.end();
    await this.#ended;
    if (!this.#killed && this.#child.exitCode !== 0) throw this.#failure;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  get #failure(): Error {
    const { exitCode, signalCode } = this.#child;
    return new Error(`The foreign member ended with ${exitCode ?? signalCode}: ${this.#complaint.trim()}`);
  }

  #tell(command: string): void {
    this.#child.stdin?.write(`${command}\n`);
  }

  #hear(event: ForeignEvent): void {
    this.events.push(event);
    for (const waiter of this.#waiters) {
      if (!waiter.kinds.has(event.event)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(event);
      return;
    }
    this.#unread.push(event);
  }
}
