import { KrabkaError, type MemberId, type Role } from "@krabka/core";
import { type FakeCluster, FakeTransport, type ManualClock, type Trace } from "@krabka/testing";
import { CoordinationClient, type Leadership } from "../../src/index.js";
import type { Handles } from "./handles.js";
import { RecordingTransport } from "./recording-transport.js";

export const LEASE_MS = 3_000;
/** The age that a state on which a mint rests may have; more on a network where reading takes longer by itself. */
const FRESH_MS = 250;

/** What a candidate that gives up may take to leave in order, beyond its own limit. */
const LEAVE_MS = 8_000;

export interface MemberParts {
  readonly id: MemberId;
  /** Tells processes with one member id apart. */
  readonly name: string;
  readonly cluster: FakeCluster;
  readonly clock: ManualClock;
  readonly handles: Handles;
  readonly trace: Trace;
  readonly leaseRecords: "append" | "transaction";
  readonly removeMissed: boolean;
}

type Condition = "running" | "frozen" | "suspended" | "crashed" | "closing" | "closed";

/** A process with one client that campaigns for roles. */
export class SimulatedMember {
  readonly id: MemberId;
  readonly name: string;
  readonly clock: ManualClock;
  readonly client: CoordinationClient;
  readonly #transport: FakeTransport;
  readonly #parts: MemberParts;
  readonly #readAskedAtMs = new Map<Role, number>();
  readonly #leaseSinceMs = new Map<Role, number>();
  readonly #campaigns = new Set<Role>();
  readonly #handlers = new Map<Role, number>();
  readonly #ends = new Map<Leadership, (error?: Error) => void>();
  readonly #ids = new Set<MemberId>();
  readonly #faults: string[] = [];
  #wasCutOff = false;
  #slowestReadMs = 0;
  #thawedAtMs = Number.NEGATIVE_INFINITY;
  #condition: Condition = "running";

  constructor(parts: MemberParts) {
    this.#parts = parts;
    this.id = parts.id;
    this.#ids.add(parts.id);
    this.name = parts.name;
    this.clock = parts.clock;
    const { cluster, clock, leaseRecords } = parts;
    this.#transport = new FakeTransport({
      cluster,
      clock,
      clientId: this.name,
      leaseRecords,
      attemptTimeoutMs: 500,
      requestTimeoutMs: 3_000,
    });
    const recording = new RecordingTransport(this.#transport, clock, {
      synced: (role, askedAtMs) => this.#noteRead(role, askedAtMs),
      mints: (role, may) => this.#checkMint(role, may),
      leaseWritten: (role, sinceMs) => this.#leaseSinceMs.set(role, sinceMs),
    });
    this.client = new CoordinationClient(recording, { leaseMs: LEASE_MS, clock, removeMissed: parts.removeMissed });
  }

  get condition(): Condition {
    return this.#condition;
  }

  get isAwake(): boolean {
    return this.#condition === "running" || this.#condition === "closing";
  }

  /** Its network is gone for a while, so it may not be able to leave in order. */
  cutOff(): void {
    this.#wasCutOff = true;
  }

  get wasCutOff(): boolean {
    return this.#wasCutOff;
  }

  /** All member ids under which it competed. */
  get ids(): ReadonlySet<MemberId> {
    return this.#ids;
  }

  /** What this member did and must not do. */
  get faults(): readonly string[] {
    return this.#faults;
  }

  /** Campaigns and handlers that are under way. */
  get busy(): number {
    return this.#campaigns.size + [...this.#handlers.values()].reduce((sum, count) => sum + count, 0);
  }

  /** The end of the lease by this member's own clock, from the last lease record that was acknowledged. */
  deadlineMs(role: Role): number {
    return (this.#leaseSinceMs.get(role) ?? Number.NEGATIVE_INFINITY) + LEASE_MS;
  }

  /** Competes for a role until the client closes; again after a handler failed or a duplicate was found. */
  campaign(role: Role): void {
    if (this.#campaigns.has(role) || this.#condition !== "running") return;
    this.#campaigns.add(role);
    this.client
      .campaign(role, this.id, (leadership) => this.#lead(leadership))
      .catch((error: unknown) => {
        const code = KrabkaError.is(error) ? error.code : String(error);
        this.#say(`campaign for ${role} ended: ${code}`);
        if (!["CLOSED", "DUPLICATE_MEMBER", "Error: the handler failed"].includes(code)) {
          this.#faults.push(`the campaign for ${role} ended: ${String(error)}`);
        }
      })
      .finally(() => this.#campaigns.delete(role));
  }

  /** Competes under another id for a while, leads if it wins, and leaves. @returns when nothing of it is left */
  async visit(role: Role, id: MemberId, timeoutMs: number): Promise<void> {
    const askedAtMs = this.clock.monotonicMs();
    this.#ids.add(id);
    try {
      const leadership = await this.client.acquire(role, id, { timeoutMs });
      this.#say(`${id} leads ${role} with ${leadership.loss === undefined ? leadership.token : "nothing any more"}`);
      this.#parts.handles.add(this, leadership);
      await leadership.close();
    } catch (error) {
      this.#say(`${id} does not lead ${role}: ${KrabkaError.is(error) ? error.code : String(error)}`);
      const tookMs = this.clock.monotonicMs() - askedAtMs;
      const paused = this.#thawedAtMs > askedAtMs;
      if (!paused && tookMs > timeoutMs + LEAVE_MS)
        this.#faults.push(`${id} waited ${tookMs} ms instead of ${timeoutMs}`);
    }
  }

  /** Ends the handler of a leadership, which gives the role up. */
  endHandler(leadership: Leadership, error?: Error): void {
    this.#ends.get(leadership)?.(error);
  }

  freeze(): void {
    this.#pause("frozen");
    this.clock.freeze();
  }

  suspend(): void {
    this.#pause("suspended");
    this.clock.suspend();
  }

  wake(): void {
    if (this.#condition !== "frozen" && this.#condition !== "suspended") return;
    this.#condition = "running";
    this.clock.resume();
    this.#transport.thaw();
    this.#thawedAtMs = this.clock.monotonicMs();
    this.#say("wakes");
  }

  /** The process is gone; what it had sent stays sent. */
  crash(): void {
    if (this.isAwake) this.freeze();
    this.#condition = "crashed";
    this.#say("crashed");
  }

  close(): void {
    this.#condition = "closing";
    this.#say("closes");
    void this.client.close().then(() => {
      if (this.#condition === "closing") this.#condition = "closed";
      this.#say("closed");
    });
  }

  async #lead(leadership: Leadership): Promise<void> {
    const { role, token } = leadership;
    this.#say(`leads ${role} with ${token}`);
    this.#parts.handles.add(this, leadership);
    const under = (this.#handlers.get(role) ?? 0) + 1;
    this.#handlers.set(role, under);
    if (under > 1) this.#faults.push(`handlers of ${role} overlap`);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#ends.set(leadership, (error) => (error === undefined ? resolve() : reject(error)));
        leadership.signal.addEventListener("abort", () => resolve(), { once: true });
        if (leadership.signal.aborted) resolve();
      });
    } finally {
      this.#handlers.set(role, under - 1);
      this.#ends.delete(leadership);
      this.#say(`no longer leads ${role}: ${leadership.loss?.reason ?? "gives it up"}`);
    }
  }

  #pause(condition: "frozen" | "suspended"): void {
    this.#condition = condition;
    this.#transport.freeze();
    this.#say(condition);
  }

  #noteRead(role: Role, askedAtMs: number): void {
    this.#readAskedAtMs.set(role, askedAtMs);
    this.#slowestReadMs = Math.max(this.#slowestReadMs, this.clock.monotonicMs() - askedAtMs);
  }

  #checkMint(role: Role, may: boolean): void {
    const askedAtMs = this.#readAskedAtMs.get(role);
    const nowMs = this.clock.monotonicMs();
    if (!may) {
      this.#slowestReadMs = Math.max(this.#slowestReadMs, nowMs - (askedAtMs ?? nowMs));
      return;
    }
    const freshMs = Math.max(FRESH_MS, 2 * this.#slowestReadMs);
    if (askedAtMs === undefined) this.#faults.push(`mints ${role} without having read it`);
    else if (askedAtMs < this.#thawedAtMs && nowMs - askedAtMs > freshMs) {
      this.#faults.push(`mints ${role} after a thaw by a state of ${nowMs - askedAtMs} ms ago`);
    }
    this.#say(`mints ${role}`);
  }

  #say(what: string): void {
    this.#parts.trace.add(this.name, what);
  }
}
