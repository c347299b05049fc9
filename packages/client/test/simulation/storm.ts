import { encodeEntry, MemberId, type Role } from "@krabka/core";
import {
  type ApiName,
  CLIENT_APIS,
  everyFault,
  type FaultAction,
  type SimulatedEvent,
  type Simulation,
  showFault,
} from "@krabka/testing";
import type { Leadership } from "../../src/index.js";
import { DATA_PARTITIONS, DATA_TOPIC } from "./ledger.js";
import { LEASE_MS, type SimulatedMember } from "./simulated-member.js";
import { COORDINATION_TOPIC, partitionOf, type Stage } from "./stage.js";

const CRITICAL_APIS: readonly ApiName[] = [
  "InitProducerId",
  "EndTxn",
  "Produce",
  "DescribeTransactions",
  "ListOffsets",
];

/** How far wall clocks are from each other, for the most part not at all. */
const WALL_AHEAD_MS = [0, 0, -40, 700, -3_600_000, 3_600_000];

/** Everything that may happen to members, their network and their cluster, and everything that callers do. */
export class Storm {
  readonly #simulation: Simulation;
  readonly #stage: Stage;
  /** The requests that faults hit: in some runs few kinds, so that they come in combinations. */
  readonly #focus: readonly ApiName[];
  #count = 0;
  #rotations = 0;

  constructor(simulation: Simulation, stage: Stage) {
    this.#simulation = simulation;
    this.#stage = stage;
    const { random } = simulation;
    this.#focus = random.chance(0.5) ? CLIENT_APIS : [1, 2, 3].map(() => random.pick(CRITICAL_APIS));
  }

  /** How many events found something to happen to. */
  get count(): number {
    return this.#count;
  }

  start(id: string): SimulatedMember {
    return this.#stage.start(id, this.#simulation.random.pick(WALL_AHEAD_MS));
  }

  #later(leastMs: number, mostMs: number, what: () => void): void {
    this.#simulation.clock.setTimer(this.#simulation.random.between(leastMs, mostMs), what);
  }

  events(): readonly SimulatedEvent[] {
    const { random } = this.#simulation;
    const cluster = this.#stage.cluster;
    const event = (name: string, weight: number, act: () => string | undefined): SimulatedEvent => ({
      name,
      weight,
      run: () => {
        const what = act();
        if (what !== undefined) this.#count += 1;
        return what;
      },
    });
    const withMember = (act: (member: SimulatedMember) => string | undefined) => () => {
      const running = this.#stage.running;
      return running.length === 0 ? undefined : act(random.pick(running));
    };
    const withLeader = (act: (leader: Leadership) => string | undefined) => () => {
      const { awake } = this.#stage.handles;
      return awake.length === 0 ? undefined : act(random.pick(awake));
    };
    const withRole = (act: (role: Role) => string | undefined) => () => act(random.pick(this.#stage.roles));
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
        this.#stage.running.length >= 5 ? undefined : this.start(`node-${random.between(1, 5)}`).name,
      ),
      event(
        "campaign",
        3,
        withMember((member) => {
          for (const role of this.#stage.roles) member.campaign(role);
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
        "visit",
        4,
        withMember((member) => {
          const role = random.pick(this.#stage.roles);
          const id = MemberId.of(`visitor-${this.#count}`);
          const timeoutMs = random.between(1, 2 * LEASE_MS);
          this.#stage.trackOf(member, member.visit(role, id, timeoutMs));
          return `${id} at ${member.name} for ${role} within ${timeoutMs} ms`;
        }),
      ),
      event(
        "close",
        1,
        withMember((member) => {
          if (this.#stage.running.length < 2) return undefined;
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
          const heir = random.pick(this.#stage.members).id;
          return this.#call(leader, `transferTo ${heir}`, leader.transferTo(heir));
        }),
      ),
      event(
        "end handler",
        1,
        withLeader((leader) => {
          const error = random.chance(0.3) ? new Error("the handler failed") : undefined;
          for (const member of this.#stage.members) member.endHandler(leader, error);
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
          : { topic: COORDINATION_TOPIC, partition: partitionOf(random.pick(this.#stage.roles)) };
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
          if (pair !== undefined) this.#stage.mints.add(role, pair);
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
          cluster.log({ topic: COORDINATION_TOPIC, partition: partitionOf(role) }).compact();
          return role;
        }),
      ),
      event(
        "tool removes",
        1,
        withRole((role) => {
          const { id } = random.pick(this.#stage.members);
          const removal = encodeEntry({ kind: "registration-removed", role, member: id });
          cluster.append({ topic: COORDINATION_TOPIC, partition: partitionOf(role) }, [removal]);
          return `${id} from ${role}`;
        }),
      ),
    ];
  }

  #write(leader: Leadership): string {
    const { random } = this.#simulation;
    const count = random.chance(0.2) ? random.between(2, 6) : 1;
    for (let index = 0; index < count; index++) {
      const partitions = random.pick([[0], [1], [0, 1], [1, 1, 0]]);
      const abort = new AbortController();
      const limits = random.pick([{}, {}, { timeoutMs: random.between(1, 50) }, { signal: abort.signal }]);
      if ("signal" in limits) this.#later(0, 30, () => abort.abort());
      const write = this.#stage.ledger.write(leader, partitions, limits).then((told) => {
        if (told !== "committed") this.#simulation.trace.add(leader.member, `write for ${leader.role}: ${told}`);
      });
      this.#stage.track(leader, write);
    }
    return `${count} by ${leader.member} for ${leader.role}`;
  }

  #fault(member: SimulatedMember): string {
    const { random } = this.#simulation;
    const api = random.pick(this.#focus);
    const given = random.pick(everyFault(api));
    const action: FaultAction = given.kind === "delay" ? { kind: "delay", ms: random.between(1, 1_500) } : given;
    // A registration may arrive so late that it comes to stand after its removal.
    if (api === "Produce" && (action.kind === "hold-request" || action.kind === "delay")) member.cutOff();
    const times = random.chance(0.1) ? random.between(2, 6) : 1;
    const fault = this.#stage.cluster.faults.inject({ api, clientId: member.name, action, times });
    this.#later(50, 4_000, () => fault.release());
    return `${showFault(action)} ${times} ${api} of ${member.name}`;
  }

  #isolate(member: SimulatedMember): string {
    const { random } = this.#simulation;
    const kind = random.pick(["lose-request", "drop-request", "lose-answer", "drop-answer"] as const);
    const faults = CLIENT_APIS.map((api) =>
      this.#stage.cluster.faults.inject({
        api,
        clientId: member.name,
        action: { kind },
        times: Number.POSITIVE_INFINITY,
      }),
    );
    member.cutOff();
    this.#stage.cluster.cutConnections(member.name);
    this.#later(50, 2 * LEASE_MS, () => {
      for (const fault of faults) fault.remove();
      this.#simulation.trace.add(member.name, "is connected again");
    });
    return `${kind} of ${member.name}`;
  }

  /** The epochs of a role's id run out, and the next id, from another broker's block, is lower. */
  #rotate(role: Role, idle: boolean): string | undefined {
    const answer = this.#stage.cluster.describe(role);
    if (!idle || !answer.ok || answer.epoch >= 32_700) return undefined;
    this.#rotations += 1;
    this.#stage.cluster.setNextProducerId(
      this.#stage.cluster.coordinatorOf(role),
      BigInt(900 - this.#rotations) * 1_000n,
    );
    this.#stage.cluster.setEpoch(role, 32_766 - this.#simulation.random.between(0, 2));
    const pair = this.#stage.cluster.mint(role);
    if (pair !== undefined) this.#stage.mints.add(role, pair);
    return `${role} from ${answer.producerId}`;
  }

  #call(leader: Leadership, what: string, call: Promise<unknown>): string {
    const note = (told: string) => this.#simulation.trace.add(leader.member, `${what} of ${leader.role}: ${told}`);
    const noted = call.then(
      () => note("done"),
      (error: Error) => note(error.message),
    );
    this.#stage.track(leader, noted);
    return `${what} by ${leader.member} of ${leader.role}`;
  }
}
