import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Guard } from "./guard.js";
import { fetchBrokers } from "./metadata.js";
import { type Security, scramArguments } from "./security.js";
import { type Node, serverProperties } from "./server-properties.js";
import { within } from "./within.js";

export interface WaitOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface KafkaBroker {
  readonly id: number;
  readonly port: number;
  /** `undefined` while the broker is down. */
  readonly pid: number | undefined;
  /** The file that the broker's log goes to. */
  readonly logFile: string;
  /** Asks the broker to shut down (SIGTERM) and waits until it has. */
  stop(options?: WaitOptions): Promise<void>;
  /** SIGKILL; resolves when the process is gone. */
  kill(options?: WaitOptions): Promise<void>;
  /** SIGSTOP: the process stands still, its connections stay open. */
  pause(): void;
  /** SIGCONT, after {@link pause}. */
  resume(): void;
  /** Boots again with the same data and port, and waits until the broker serves. */
  start(options?: WaitOptions): Promise<void>;
}

/** What every broker of a cluster is started with. */
export interface Launch {
  readonly guard: Guard;
  readonly java: string;
  readonly classPath: string;
  readonly jvmOptions: readonly string[];
  readonly clusterId: string;
  readonly nodes: readonly Node[];
  readonly settings: Readonly<Record<string, string>>;
  readonly security: Security | undefined;
}

const BOOT_LIMIT_MS = 90_000;
const PROBE_LIMIT_MS = 2_000;
const PROBE_INTERVAL_MS = 50;

/** Boot time matters more than throughput: one garbage collector thread, no second compiler. */
const JVM_OPTIONS = [
  "-Xms128m",
  "-Xmx384m",
  "-XX:+UseSerialGC",
  "-XX:TieredStopAtLevel=1",
  "-Xshare:auto",
  "-Djava.awt.headless=true",
  "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
  "-Dorg.slf4j.simpleLogger.showDateTime=true",
  "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
  // log4j's own core lies on the class path of Kafka 4 without a configuration, which it would report.
  "-Dlog4j2.StatusLogger.level=OFF",
];

export class BrokerProcess implements KafkaBroker {
  readonly id: number;
  readonly port: number;
  readonly logFile: string;
  readonly #launch: Launch;
  readonly #properties: string;
  #child: ChildProcess | undefined;

  private constructor(node: Node, launch: Launch, folder: string) {
    this.id = node.id;
    this.port = node.port;
    this.logFile = join(folder, "broker.log");
    this.#properties = join(folder, "server.properties");
    this.#launch = launch;
  }

  /** Writes the settings and formats the storage; does not boot. */
  static async prepare(node: Node, launch: Launch, signal: AbortSignal | undefined): Promise<BrokerProcess> {
    const folder = join(launch.guard.folder, `broker-${node.id}`);
    await mkdir(folder);
    const broker = new BrokerProcess(node, launch, folder);
    const data = join(folder, "data");
    const { nodes, settings, security } = launch;
    await writeFile(broker.#properties, serverProperties(node, nodes, data, settings, security));
    const format = broker.#java("kafka.tools.StorageTool", [
      "format",
      "-t",
      launch.clusterId,
      "-c",
      broker.#properties,
      ...(security === undefined ? [] : scramArguments(security)),
    ]);
    await broker.#exit(format, signal);
    if (format.exitCode !== 0) throw await broker.#failure("could not format its storage");
    return broker;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  async start({ signal }: WaitOptions = {}): Promise<void> {
    if (this.#child !== undefined) throw new Error(`broker ${this.id} runs already; stop() or kill() it first`);
    const child = this.#java("kafka.Kafka", [this.#properties]);
    this.#child = child;
    child.once("exit", () => {
      this.#child = undefined;
    });
    const giveUpAtMs = performance.now() + BOOT_LIMIT_MS;
    while (!(await this.#serves(signal))) {
      if (this.#child !== child) throw await this.#failure("ended while it booted");
      if (performance.now() > giveUpAtMs) throw await this.#failure(`does not serve after ${BOOT_LIMIT_MS} ms`);
      await sleep(PROBE_INTERVAL_MS, undefined, { ...(signal && { signal }) });
    }
  }

  async stop({ signal }: WaitOptions = {}): Promise<void> {
    await this.#end("SIGTERM", signal);
  }

  async kill({ signal }: WaitOptions = {}): Promise<void> {
    await this.#end("SIGKILL", signal);
  }

  pause(): void {
    this.#running().kill("SIGSTOP");
  }

  resume(): void {
    this.#running().kill("SIGCONT");
  }

  #running(): ChildProcess {
    if (this.#child === undefined) throw new Error(`broker ${this.id} is down; start() it first`);
    return this.#child;
  }

  async #end(how: NodeJS.Signals, signal: AbortSignal | undefined): Promise<void> {
    if (this.#child === undefined) return;
    const child = this.#child;
    child.kill(how);
    await this.#exit(child, signal);
  }

  /** Waits for the end of a child, which keeps this process running for that long. */
  async #exit(child: ChildProcess, signal: AbortSignal | undefined): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.ref();
    try {
      await once(child, "exit", { ...(signal && { signal }) });
    } finally {
      child.unref();
    }
  }

  /** A broker answers once it has caught up with the metadata log, and then lists itself unless it is fenced. */
  async #serves(signal: AbortSignal | undefined): Promise<boolean> {
    const address = { host: "127.0.0.1", port: this.port };
    try {
      const known = await within(PROBE_LIMIT_MS, signal, "an answer", (bounds) => fetchBrokers(address, bounds));
      return known.some(({ id }) => id === this.id);
    } catch {
      signal?.throwIfAborted();
      return false;
    }
  }

  #java(mainClass: string, args: readonly string[]): ChildProcess {
    const { guard, java, classPath, jvmOptions } = this.#launch;
    const log = openSync(this.logFile, "a");
    try {
      return guard.spawn(java, [...JVM_OPTIONS, ...jvmOptions, "-cp", classPath, mainClass, ...args], log);
    } finally {
      closeSync(log);
    }
  }

  async #failure(what: string): Promise<Error> {
    const log = await readFile(this.logFile, "utf8").catch(() => "");
    const lines = log.trimEnd().split("\n").slice(-30).join("\n");
    return new Error(`Kafka broker ${this.id} ${what}. The end of its log:\n${lines}`);
  }
}
