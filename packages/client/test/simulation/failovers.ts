import { Role } from "@krabka/core";
import { Simulation } from "@krabka/testing";
import { partitionOf, Stage } from "./stage.js";
import { Storm } from "./storm.js";

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

/** Members that compete for roles while things go wrong, and everything that must hold meanwhile and afterwards. */
export class Failovers {
  readonly simulation: Simulation;
  readonly #stage: Stage;
  readonly #storm: Storm;

  constructor(seed: number) {
    this.simulation = new Simulation({ seed });
    const { random } = this.simulation;
    const latency = random.fork();
    const slowest = random.pick([2, 2, 20, 150]);
    this.#stage = new Stage({
      simulation: this.simulation,
      roles: ROLES.slice(0, random.between(1, ROLES.length)),
      leaseRecords: random.pick(["append", "transaction"]),
      removeMissed: random.chance(0.8),
      cluster: { latencyMs: () => 0.3 + latency.next() * slowest, markerDelayMs: random.between(0, 3) },
    });
    this.#storm = new Storm(this.simulation, this.#stage);
  }

  /**
   * @returns how often what happened
   * @throws {SimulationFailure}
   */
  async run(): Promise<Readonly<Record<string, number>>> {
    const { simulation } = this;
    const { ledger, mints } = this.#stage;
    await simulation.whole(async () => {
      for (let count = simulation.random.between(2, 5); count > 0; count--) this.#storm.start(`node-${count}`);
      await simulation.advance(2_000, 100);
      const events = this.#storm.events();
      for (let part = 0; part < 4; part++) {
        await simulation.storm(events, STORM_MS / 4, simulation.random.pick([50, 150, 400, 1_000]));
        ledger.check();
      }
      const mintLimit = 20 + MINTS_PER_EVENT * this.#storm.count;
      if (mints.count > mintLimit) {
        throw new Error(`${mints.count} mints after ${this.#storm.count} events; expected at most ${mintLimit}`);
      }
      await this.#stage.calm();
      await this.#stage.leave();
    });
    return { ...ledger.tally, mints: mints.count, events: this.#storm.count };
  }
}
