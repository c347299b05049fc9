import { MemberId, partitionForRole, type Role, RoleState, samePair } from "@krabka/core";
import { FakeCluster, type FakeClusterOptions, type Simulation } from "@krabka/testing";
import type { Leadership } from "../../src/index.js";
import { recordsOf } from "./coordination-log.js";
import { Handles } from "./handles.js";
import { DATA_PARTITIONS, DATA_TOPIC, Ledger } from "./ledger.js";
import { Mints } from "./mints.js";
import { LEASE_MS, SimulatedMember } from "./simulated-member.js";

export const COORDINATION_TOPIC = "__coordination_state";
const COORDINATION_PARTITIONS = 16;
const STAGGER_MS = LEASE_MS / 6;
/** Time-outs of requests and pauses between attempts that may still be running when the faults end. */
const SLACK_MS = 12_000;

/** The partition of the coordination topic that holds a role. */
export const partitionOf = (role: Role): number => partitionForRole(role, COORDINATION_PARTITIONS);

export interface StageParts {
  readonly simulation: Simulation;
  readonly roles: readonly Role[];
  readonly leaseRecords: "append" | "transaction";
  readonly removeMissed?: boolean | undefined;
  readonly cluster?: Omit<FakeClusterOptions, "clock" | "onExecuted"> | undefined;
}

/** A cluster and members that compete for roles on it, with everything that must hold throughout and at the end. */
export class Stage {
  readonly cluster: FakeCluster;
  readonly mints = new Mints();
  readonly handles = new Handles(this.mints);
  readonly ledger: Ledger;
  readonly roles: readonly Role[];
  readonly members: SimulatedMember[] = [];
  readonly #simulation: Simulation;
  readonly #leaseRecords: "append" | "transaction";
  readonly #removeMissed: boolean;
  readonly #openCalls = new Map<Promise<unknown>, SimulatedMember | undefined>();

  constructor({ simulation, roles, leaseRecords, removeMissed = true, cluster }: StageParts) {
    this.#simulation = simulation;
    this.#leaseRecords = leaseRecords;
    this.#removeMissed = removeMissed;
    this.roles = roles;
    this.cluster = new FakeCluster({ ...cluster, clock: simulation.clock, onExecuted: this.mints.onExecuted });
    this.cluster.createTopic(DATA_TOPIC, { partitions: DATA_PARTITIONS });
    this.ledger = new Ledger(this.cluster, this.mints);
    simulation.always({ name: "what each leadership says of itself", check: () => this.handles.check() });
    simulation.always({ name: "what members do", check: () => this.#checkMembers() });
  }

  get running(): readonly SimulatedMember[] {
    return this.members.filter(({ condition }) => condition === "running");
  }

  start(id: string, wallAheadMs = 0): SimulatedMember {
    const clock = this.#simulation.clock.fork({ wallMs: this.#simulation.clock.wallMs() + wallAheadMs });
    const member = new SimulatedMember({
      id: MemberId.of(id),
      name: `${id}.${this.members.length}`,
      cluster: this.cluster,
      clock,
      handles: this.handles,
      trace: this.#simulation.trace,
      leaseRecords: this.#leaseRecords,
      removeMissed: this.#removeMissed,
    });
    this.members.push(member);
    this.#simulation.trace.add(member.name, "starts");
    for (const role of this.roles) member.campaign(role);
    return member;
  }

  /** A call that must settle, unless its process crashes. */
  track(leader: Leadership, call: Promise<unknown>): void {
    this.trackOf(this.handles.memberOf(leader), call);
  }

  trackOf(member: SimulatedMember | undefined, call: Promise<unknown>): void {
    this.#openCalls.set(call, member);
    void call.then(() => this.#openCalls.delete(call));
  }

  /** After all faults end, each role has one leader, which writes and stays. */
  async calm({ slackMs = SLACK_MS, leases = 5 } = {}): Promise<void> {
    const simulation = this.#simulation;
    simulation.trace.add("calm", "all faults end");
    this.cluster.faults.clear();
    for (let id = 0; id < 3; id++) if (!this.cluster.liveBrokers.includes(id)) this.cluster.startBroker(id);
    for (const member of this.members) member.wake();
    await simulation.advance(100);
    while (this.running.length < 2) this.start("node-late");
    for (const role of this.roles) for (const member of this.running) member.campaign(role);
    await simulation.advance(LEASE_MS + (this.members.length + 1) * STAGGER_MS + slackMs, 50);
    const before = this.mints.count;
    const leaders = this.roles.map((role) => this.soleLeader(role));
    for (let lease = 0; lease < leases; lease++) {
      for (const leader of leaders) await this.#mustWrite(leader);
      await simulation.advance(LEASE_MS, 100);
    }
    if (this.mints.count !== before) throw new Error(`${this.mints.count - before} mints while nothing was wrong`);
    for (const leader of leaders)
      if (!leader.isLeader) throw new Error(`${leader.member} lost ${leader.role} in the calm`);
    this.ledger.check();
  }

  soleLeader(role: Role): Leadership {
    const leading = this.handles.awake.filter((leadership) => leadership.role === role);
    const [leader] = leading;
    if (leader === undefined || leading.length > 1) {
      throw new Error(`role ${role} is led by [${leading.map(({ member }) => member)}]; expected one leader`);
    }
    return leader;
  }

  async #mustWrite(leader: Leadership): Promise<void> {
    const code = await this.#simulation.clock.settle(this.ledger.write(leader, [0, 1]));
    const status = this.cluster.describe(leader.role);
    if (!status.ok || !samePair(status, leader.token)) {
      throw new Error(`${leader.member} shows ${leader.token} for ${leader.role}; the coordinator names another pair`);
    }
    if (code !== "committed") throw new Error(`a write of ${leader.member} for ${leader.role} in the calm: ${code}`);
  }

  /** After all clients closed, nothing is left behind. */
  async leave(): Promise<void> {
    const simulation = this.#simulation;
    for (const member of this.members) if (member.condition === "running") member.close();
    await simulation.advance(8_000, 500);
    this.ledger.check();
    const unsettled = [...this.#openCalls.values()].filter((member) => member?.condition !== "crashed");
    if (unsettled.length > 0) throw new Error(`calls of [${unsettled.map((member) => member?.name)}] never settled`);
    for (const member of this.members) {
      if (member.condition === "crashed") continue;
      if (member.condition !== "closed") throw new Error(`${member.name} is ${member.condition} after its close`);
      if (member.busy > 0) throw new Error(`${member.name} still has ${member.busy} campaigns or handlers`);
      if (member.clock.pendingTimers > 0) throw new Error(`${member.name} left ${member.clock.pendingTimers} timers`);
    }
    const excused = this.members.filter(({ condition, wasCutOff }) => condition === "crashed" || wasCutOff);
    const mayRemain = new Set(excused.flatMap(({ ids }) => [...ids]));
    for (const role of this.roles) {
      const { roster } = this.#stateOf(role);
      const ghosts = roster.filter(({ member }) => !mayRemain.has(member)).map(({ member }) => member);
      if (ghosts.length > 0) throw new Error(`role ${role} still has [${ghosts}] registered`);
    }
    this.cluster.close();
  }

  #stateOf(role: Role): RoleState {
    const log = this.cluster.read({ topic: COORDINATION_TOPIC, partition: partitionOf(role) });
    return RoleState.fold(role, recordsOf(log));
  }

  #checkMembers(): void {
    for (const { name, faults } of this.members) if (faults.length > 0) throw new Error(`${name} ${faults[0]}`);
  }
}
