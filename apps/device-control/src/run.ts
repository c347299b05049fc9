import { setTimeout as sleep } from "node:timers/promises";
import type { Backend } from "./backends/backend.js";
import type { FromCandidate, FromDevice, ToCandidate } from "./messages.js";
import { TalkingProcess } from "./processes.js";
import type { Reign } from "./summary.js";

type Candidate = TalkingProcess<FromCandidate, ToCandidate>;
type Woke = Extract<FromCandidate, { kind: "woke" }>;

export interface RunOptions {
  readonly backend: Backend;
  readonly leaseMs: number;
  readonly say: (line: string) => void;
}

export interface RunResult {
  readonly reigns: readonly Reign[];
  readonly written: number;
  readonly dispatched: number;
  readonly zombie: Woke;
}

const DEVICES = 3;
const CANDIDATES = 4;
/** Well inside the time for which a suspending candidate blocks by itself. */
const SUSPEND_LEAD_MS = 200;
/** How long each leader is left in peace. */
const REIGN_MS = 500;

/** Candidates and devices as processes of their own, and the events that befall them. */
export class Run {
  readonly #options: RunOptions;
  readonly #candidates: Candidate[] = [];
  readonly #devices: TalkingProcess<FromDevice>[] = [];
  readonly #reigns: Reign[] = [];
  #urls: readonly string[] = [];
  #written = 0;
  #dispatched = 0;
  #failure: Error | undefined;
  #onReign: (reign: Omit<Reign, "after" | "takeoverMs">) => void = () => {};

  constructor(options: RunOptions) {
    this.#options = options;
  }

  async play(): Promise<RunResult> {
    const { say } = this.#options;
    await this.#startDevices();
    let leader = await this.#event("the start", async () => {
      for (let i = 0; i < CANDIDATES; i++) this.#startCandidate(i);
    });
    await sleep(REIGN_MS);
    const first = leader;
    leader = await this.#event(`${first.name} resigned`, async () => first.tell({ kind: "resign" }));
    await sleep(REIGN_MS);
    const second = leader;
    leader = await this.#event(`kill -9 of ${second.name}`, async () => second.signal("SIGKILL"));
    await sleep(REIGN_MS);
    const third = leader;
    const suspending = third.next(({ kind }) => kind === "suspending");
    await this.#event(`${third.name} was frozen`, async () => {
      third.tell({ kind: "suspend" });
      await suspending;
      // It blocks now; the stop must fall inside of that, or the process would notice the time that passed.
      await sleep(SUSPEND_LEAD_MS);
      third.signal("SIGSTOP");
    });
    await sleep(REIGN_MS);
    say(`${third.name} wakes up and carries on as if it still led`);
    const woke = third.next(({ kind }) => kind === "woke") as Promise<Woke>;
    third.signal("SIGCONT");
    const zombie = await woke;
    say(`  its write: ${zombie.write}; its command to the device: ${zombie.dispatch}`);
    await sleep(REIGN_MS);
    await this.#stopAll();
    if (this.#failure !== undefined) throw this.#failure;
    return { reigns: this.#reigns, written: this.#written, dispatched: this.#dispatched, zombie };
  }

  /** Ends every process, whatever state it is in. */
  kill(): void {
    for (const child of [...this.#candidates, ...this.#devices]) child.signal("SIGKILL");
  }

  async #startDevices(): Promise<void> {
    const started = Array.from({ length: DEVICES }, async (_, i) => {
      const device = new TalkingProcess<FromDevice>(`device-${i}`, "./device.js", []);
      this.#devices.push(device);
      return (await device.next(({ kind }) => kind === "listening")).url;
    });
    this.#urls = await Promise.all(started);
  }

  #startCandidate(index: number): void {
    const { backend, leaseMs } = this.#options;
    const { transport, address } = backend.entryOf(index);
    const name = `candidate-${index + 1}`;
    const args = [name, transport, address, backend.topic, String(leaseMs), ...this.#urls];
    const candidate: Candidate = new TalkingProcess(name, "./candidate.js", args, (message: FromCandidate) => {
      this.#heard(candidate, message);
    });
    this.#candidates.push(candidate);
  }

  #heard(candidate: Candidate, message: FromCandidate): void {
    switch (message.kind) {
      case "written":
        this.#written += 1;
        this.#onReign({ leader: candidate.name, token: message.token });
        break;
      case "dispatched":
        this.#dispatched += 1;
        break;
      case "lost":
        this.#options.say(`${candidate.name} no longer leads: ${message.reason}`);
        break;
      case "failed":
        this.#failure = new Error(`${candidate.name}: ${message.error}`);
        break;
    }
  }

  /** Lets something happen and waits until a leader of a later term has its first command committed. */
  async #event(after: string, happen: () => Promise<void>): Promise<Candidate> {
    const { say } = this.#options;
    const former = this.#reigns.at(-1)?.token;
    say(`-- ${after}`);
    let fromMs = 0;
    const succeeded = new Promise<Reign>((resolve) => {
      this.#onReign = ({ leader, token }) => {
        if (token !== former) resolve({ leader, token, after, takeoverMs: performance.now() - fromMs });
      };
    });
    fromMs = performance.now();
    await happen();
    const reign = await succeeded;
    this.#onReign = () => {};
    this.#reigns.push(reign);
    say(
      `${reign.leader} leads with token ${reign.token}; first command committed after ${reign.takeoverMs.toFixed(0)} ms`,
    );
    return this.#candidates.find(({ name }) => name === reign.leader) as Candidate;
  }

  async #stopAll(): Promise<void> {
    const alive = this.#candidates.filter((candidate) => candidate.isAlive);
    for (const candidate of alive) candidate.tell({ kind: "leave" });
    await Promise.all(alive.map((candidate) => candidate.exited));
    for (const device of this.#devices) device.signal("SIGKILL");
    await Promise.all(this.#devices.map((device) => device.exited));
  }
}
