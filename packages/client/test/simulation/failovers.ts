import { encodeEntry, MemberId, partitionForRole, Role, RoleState } from "@krabka/core";
import {
  CLIENT_APIS,
  everyFault,
  FakeCluster,
  type FaultAction,
  type SimulatedEvent,
  Simulation,
  showFault,
} from "@krabka/testing";
import type { Leadership } from "../../src/index.js";
import { recordsOf } from "./coordination-log.js";
import { Handles } from "./handles.js";
import { DATA_PARTITIONS, DATA_TOPIC, Ledger } from "./ledger.js";
import { Mints } from "./mints.js";
import { LEASE_MS, SimulatedMember } from "./simulated-member.js";

const COORDINATION = "__coordination_state";
const COORDINATION_PARTITIONS = 16;
const STAGGER_MS = LEASE_MS / 6;
/** Time-outs of requests and pauses between attempts that may still be running when the faults end. */
const SLACK_MS = 12_000;
const STORM_MS = 40_000;
/** A failover takes a mint or two; each trouble may cost an attempt or two more. */
const MINTS_PER_EVENT = 2;

/** The first two roles share a partition of the coordination topic. */
const ROLES = [Role.of("role-0"), sharing("role-0"), Role.of("role-1")] as const;

function sharing(name: string): Role {
  for (let index = 2; ; index++) {
    const role = Role.of(`role-${index}`);
    if (partitionOf(role) === partitionOf(Role.of(name))) return role;
  }
}

function partitionOf(role: Role): number {
  return partitionForRole(role, COORDINATION_PARTITIONS);
}

/** Members that compete for roles while things go wrong, and everything that must hold meanwhile and afterwards. */
export class Failovers {
  readonly simulation: Simulation;
  readonly #mints = new Mints();
  readonly #handles = new Handles(this.#mints);
  readonly #cluster: FakeCluster;
  readonly #ledger: Ledger;
  readonly #members: SimulatedMember[] = [];
  readonly #roles: readonly Role[];
  readonly #leaseRecords: "append" | "transaction";
  #eventCount = 0;
  #rotations = 0;
  readonly #openCalls = new Map<Promise<unknown>, SimulatedMember | undefined>();

  constructor(seed: number) {
    this.simulation = new Simulation({ seed });
    const { random, clock } = this.simulation;
    const latency = random.fork();
    this.#leaseRecords = seed % 2 === 0 ? "append" : "transaction";
    this.#roles = ROLES.slice(0, random.between(1, ROLES.length));
    this.#cluster = new FakeCluster({
      clock,
      latencyMs: () => 0.3 + latency.next() * 2,
      markerDelayMs: random.between(0, 3),
      onExecuted: this.#mints.onExecuted,
    });
    this.#cluster.createTopic(DATA_TOPIC, { partitions: DATA_PARTITIONS });
    this.#ledger = new Ledger(this.#cluster, this.#mints);
    this.simulation.always({ name: "what each leadership says of itself", check: () => this.#handles.check() });
    this.simulation.always({ name: "what members do", check: () => this.#checkMembers() });
  }

  /** @throws {SimulationFailure} */
  async run(): Promise<Readonly<Record<string, number>>> {
    const { simulation } = this;
    await simulation.whole(async () => {
      for (let count = simulation.random.between(2, 5); count > 0; count--) this.#start(`node-${count}`);
      await simulation.advance(2_000, 100);
      const events = this.#events();
      for (let part = 0; part < 4; part++) {
        await simulation.storm(events, STORM_MS / 4, simulation.random.pick([50, 150, 400, 1_000]));
        this.#ledger.check();
      }
      const mintLimit = 20 + MINTS_PER_EVENT * this.#eventCount;
      if (this.#mints.count > mintLimit) {
        throw new Error(`${this.#mints.count} mints after ${this.#eventCount} events; expected at most ${mintLimit}`);
      }
      await this.#calm();
      await this.#leave();
    });
    return { ...this.#ledger.tally, mints: this.#mints.count, events: this.#eventCount };
  }

  /** After all faults end, each role has one leader, which writes and stays. */
  async #calm(): Promise<void> {
    const { simulation } = this;
    simulation.trace.add("calm", "all faults end");
    this.#cluster.faults.clear();
    for (let id = 0; id < 3; id++) if (!this.#cluster.liveBrokers.includes(id)) this.#cluster.startBroker(id);
    for (const member of this.#members) member.wake();
    await simulation.advance(100);
    while (this.#running.length < 2) this.#start("node-late");
    for (const role of this.#roles) for (const member of this.#running) member.campaign(role);
    await simulation.advance(LEASE_MS + (this.#members.length + 1) * STAGGER_MS + SLACK_MS, 50);
    const before = this.#mints.count;
    const leaders = this.#roles.map((role) => this.#soleLeader(role));
    for (let lease = 0; lease < 5; lease++) {
      for (const leader of leaders) await this.#mustWrite(leader);
      await simulation.advance(LEASE_MS, 100);
    }
    if (this.#mints.count !== before) throw new Error(`${this.#mints.count - before} mints while nothing was wrong`);
    for (const leader of leaders)
      if (!leader.isLeader) throw new Error(`${leader.member} lost ${leader.role} in the calm`);
    this.#ledger.check();
  }

  #soleLeader(role: Role): Leadership {
    const leading = this.#handles.awake.filter((leadership) => leadership.role === role);
    const [leader] = leading;
    if (leader === undefined || leading.length > 1) {
      throw new Error(`role ${role} is led by [${leading.map(({ member }) => member)}]; expected one leader`);
    }
    return leader;
  }

  async #mustWrite(leader: Leadership): Promise<void> {
    const code = await this.simulation.clock.settle(this.#ledger.write(leader, [0, 1]));
    if (code !== "committed") throw new Error(`a write of ${leader.member} for ${leader.role} in the calm: ${code}`);
  }

  /** After all clients closed, nothing is left behind. */
  async #leave(): Promise<void> {
    const { simulation } = this;
    for (const member of this.#members) if (member.condition === "running") member.close();
    await simulation.advance(8_000, 500);
    this.#ledger.check();
    const unsettled = [...this.#openCalls.values()].filter((member) => member?.condition !== "crashed");
    if (unsettled.length > 0) throw new Error(`calls of [${unsettled.map((member) => member?.name)}] never settled`);
    for (const member of this.#members) {
      if (member.condition === "crashed") continue;
      if (member.condition !== "closed") throw new Error(`${member.name} is ${member.condition} after its close`);
      if (member.busy > 0) throw new Error(`${member.name} still has ${member.busy} campaigns or handlers`);
      if (member.clock.pendingTimers > 0) throw new Error(`${member.name} left ${member.clock.pendingTimers} timers`);
    }
    const dead = new Set(this.#members.filter(({ condition }) => condition === "crashed").map(({ id }) => id));
    for (const role of this.#roles) {
      const { roster } = this.#stateOf(role);
      const ghosts = roster.filter(({ member }) => !dead.has(member)).map(({ member }) => member);
      if (ghosts.length > 0) throw new Error(`role ${role} still has [${ghosts}] registered`);
    }
    this.#cluster.close();
  }

  #stateOf(role: Role): RoleState {
    const log = this.#cluster.read({ topic: COORDINATION, partition: partitionOf(role) });
    return RoleState.fold(role, recordsOf(log));
  }

  #checkMembers(): void {
    for (const { name, faults } of this.#members) if (faults.length > 0) throw new Error(`${name} ${faults[0]}`);
  }

  get #running(): readonly SimulatedMember[] {
    return this.#members.filter(({ condition }) => condition === "running");
  }

  #start(id: string): SimulatedMember {
    const clock = this.simulation.clock.fork({
      wallMs: this.simulation.clock.wallMs() + this.simulation.random.pick([0, 0, -40, 700, -3_600_000, 3_600_000]),
    });
    const member = new SimulatedMember({
      id: MemberId.of(id),
      name: `${id}.${this.#members.length}`,
      cluster: this.#cluster,
      clock,
      handles: this.#handles,
      trace: this.simulation.trace,
      leaseRecords: this.#leaseRecords,
    });
    this.#members.push(member);
    this.simulation.trace.add(member.name, "starts");
    for (const role of this.#roles) member.campaign(role);
    return member;
  }

  #later(leastMs: number, mostMs: number, what: () => void): void {
    this.simulation.clock.setTimer(this.simulation.random.between(leastMs, mostMs), what);
  }

  #events(): readonly SimulatedEvent[] {
    const { random } = this.simulation;
    const cluster = this.#cluster;
    const event = (name: string, weight: number, act: () => string | undefined): SimulatedEvent => ({
      name,
      weight,
      run: () => {
        const what = act();
        if (what !== undefined) this.#eventCount += 1;
        return what;
      },
    });
    const withMember = (act: (member: SimulatedMember) => string | undefined) => () => {
      const running = this.#running;
      return running.length === 0 ? undefined : act(random.pick(running));
    };
    const withLeader = (act: (leader: Leadership) => string | undefined) => () => {
      const { awake } = this.#handles;
      return awake.length === 0 ? undefined : act(random.pick(awake));
    };
    const withRole = (act: (role: Role) => string | undefined) => () => act(random.pick(this.#roles));
    const idle = (role: Role): boolean => {
      const answer = cluster.describe(role);
      return answer.ok && (answer.state === "Empty" || answer.state.startsWith("Complete"));
    };
    return [
      event(
        "write",
        30,
        withLeader((leader) => this.#write(leader)),
      ),
      event(
        "fault",
        20,
        withMember((member) => this.#fault(member)),
      ),
      event("start", 3, () =>
        this.#running.length >= 5 ? undefined : this.#start(`node-${random.between(1, 5)}`).name,
      ),
      event(
        "campaign",
        3,
        withMember((member) => {
          for (const role of this.#roles) member.campaign(role);
          return member.name;
        }),
      ),
      event(
        "crash",
        2,
        withMember((member) => {
          member.crash();
          return member.name;
        }),
      ),
      event(
        "freeze",
        3,
        withMember((member) => {
          if (random.chance(0.5)) member.freeze();
          else member.suspend();
          this.#later(10, 2 * LEASE_MS, () => member.wake());
          return member.name;
        }),
      ),
      event(
        "cut",
        2,
        withMember((member) => {
          cluster.cutConnections(member.name);
          return member.name;
        }),
      ),
      event(
        "isolate",
        2,
        withMember((member) => this.#isolate(member)),
      ),
      event(
        "close",
        1,
        withMember((member) => {
          if (this.#running.length < 2) return undefined;
          member.close();
          return member.name;
        }),
      ),
      event(
        "resign",
        2,
        withLeader((leader) => this.#call(leader, "resign", leader.resign())),
      ),
      event(
        "hand over",
        2,
        withLeader((leader) => {
          const heir = random.pick(this.#members).id;
          return this.#call(leader, `transferTo ${heir}`, leader.transferTo(heir));
        }),
      ),
      event(
        "end handler",
        1,
        withLeader((leader) => {
          const error = random.chance(0.3) ? new Error("the handler failed") : undefined;
          for (const member of this.#members) member.endHandler(leader, error);
          return `${leader.member} ${error === undefined ? "" : "with an error"}`;
        }),
      ),
      event(
        "verify",
        2,
        withLeader((leader) => this.#call(leader, "verify", leader.verify({ timeoutMs: 700 }))),
      ),
      event(
        "renew",
        2,
        withLeader((leader) => this.#call(leader, "renew", leader.renew())),
      ),
      event(
        "move coordinator",
        1,
        withRole((role) => {
          cluster.moveCoordinator(role, random.pick(cluster.liveBrokers));
          return role;
        }),
      ),
      event("move leader", 1, () => {
        const ref = random.chance(0.5)
          ? { topic: DATA_TOPIC, partition: random.between(0, DATA_PARTITIONS - 1) }
          : { topic: COORDINATION, partition: partitionOf(random.pick(this.#roles)) };
        cluster.moveLeader(ref, random.pick(cluster.liveBrokers));
        return `${ref.topic}/${ref.partition}`;
      }),
      event("stop broker", 0.5, () => {
        if (cluster.liveBrokers.length < 3) return undefined;
        const broker = random.pick(cluster.liveBrokers);
        cluster.stopBroker(broker);
        this.#later(50, 3_000, () => {
          if (!cluster.liveBrokers.includes(broker)) cluster.startBroker(broker);
        });
        return String(broker);
      }),
      event(
        "stranger mints",
        0.5,
        withRole((role) => {
          const pair = cluster.mint(role);
          if (pair !== undefined) this.#mints.add(role, pair);
          return `${role} ${pair?.producerId}:${pair?.epoch}`;
        }),
      ),
      event(
        "expire id",
        0.5,
        withRole((role) => {
          if (!idle(role)) return undefined;
          cluster.expireTransactionalId(role);
          return role;
        }),
      ),
      event(
        "rotate id",
        1,
        withRole((role) => this.#rotate(role, idle(role))),
      ),
      event(
        "step clock",
        1,
        withMember((member) => {
          const ms = random.pick([-7_200_000, -2_000, 500, 4_000, 7_200_000]);
          member.clock.stepWall(ms);
          return `${member.name} ${ms}`;
        }),
      ),
      event(
        "compact",
        1,
        withRole((role) => {
          cluster.log({ topic: COORDINATION, partition: partitionOf(role) }).compact();
          return role;
        }),
      ),
      event(
        "tool removes",
        1,
        withRole((role) => {
          const { id } = random.pick(this.#members);
          const removal = encodeEntry({ kind: "registration-removed", role, member: id });
          cluster.append({ topic: COORDINATION, partition: partitionOf(role) }, [removal]);
          return `${id} from ${role}`;
        }),
      ),
    ];
  }

  #write(leader: Leadership): string {
    const { random } = this.simulation;
    const count = random.chance(0.2) ? random.between(2, 6) : 1;
    for (let index = 0; index < count; index++) {
      const partitions = random.pick([[0], [1], [0, 1], [1, 1, 0]]);
      const abort = new AbortController();
      const limits = random.pick([{}, {}, { timeoutMs: random.between(1, 50) }, { signal: abort.signal }]);
      if ("signal" in limits) this.#later(0, 30, () => abort.abort());
      const write = this.#ledger.write(leader, partitions, limits).then((told) => {
        if (told !== "committed") this.simulation.trace.add(leader.member, `write for ${leader.role}: ${told}`);
      });
      this.#track(leader, write);
    }
    return `${count} by ${leader.member} for ${leader.role}`;
  }

  #fault(member: SimulatedMember): string {
    const { random } = this.simulation;
    const api = random.pick(CLIENT_APIS);
    const given = random.pick(everyFault(api));
    const action: FaultAction = given.kind === "delay" ? { kind: "delay", ms: random.between(1, 1_500) } : given;
    const times = random.chance(0.1) ? random.between(2, 6) : 1;
    const fault = this.#cluster.faults.inject({ api, clientId: member.name, action, times });
    this.#later(50, 4_000, () => fault.release());
    return `${showFault(action)} ${times} ${api} of ${member.name}`;
  }

  #isolate(member: SimulatedMember): string {
    const { random } = this.simulation;
    const kind = random.pick(["lose-request", "drop-request", "lose-answer", "drop-answer"] as const);
    const faults = CLIENT_APIS.map((api) =>
      this.#cluster.faults.inject({ api, clientId: member.name, action: { kind }, times: Number.POSITIVE_INFINITY }),
    );
    this.#cluster.cutConnections(member.name);
    this.#later(50, 2 * LEASE_MS, () => {
      for (const fault of faults) fault.remove();
      this.simulation.trace.add(member.name, "is connected again");
    });
    return `${kind} of ${member.name}`;
  }

  /** The epochs of a role's id run out, and the next id, from another broker's block, is lower. */
  #rotate(role: Role, idle: boolean): string | undefined {
    const answer = this.#cluster.describe(role);
    if (!idle || !answer.ok || answer.epoch >= 32_700) return undefined;
    this.#rotations += 1;
    this.#cluster.setNextProducerId(this.#cluster.coordinatorOf(role), BigInt(900 - this.#rotations) * 1_000n);
    this.#cluster.setEpoch(role, 32_766 - this.simulation.random.between(0, 2));
    const pair = this.#cluster.mint(role);
    if (pair !== undefined) this.#mints.add(role, pair);
    return `${role} from ${answer.producerId}`;
  }

  #call(leader: Leadership, what: string, call: Promise<unknown>): string {
    const note = (told: string) => this.simulation.trace.add(leader.member, `${what} of ${leader.role}: ${told}`);
    const noted = call.then(
      () => note("done"),
      (error: Error) => note(error.message),
    );
    this.#track(leader, noted);
    return `${what} by ${leader.member} of ${leader.role}`;
  }

  /** A call that must settle, unless its process crashes. */
  #track(leader: Leadership, call: Promise<unknown>): void {
    this.#openCalls.set(call, this.#handles.memberOf(leader));
    void call.then(() => this.#openCalls.delete(call));
  }
}
