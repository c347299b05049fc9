import { MemberId, partitionForRole, Role } from "@krabka/core";
import { FakeCluster, FakeTransport, type FakeTransportOptions, ManualClock } from "@krabka/testing";
import { type ClientOptions, CoordinationClient } from "../src/index.js";
import { recordsOf } from "./simulation/coordination-log.js";

export const ROLE = Role.of("controller");
export const LEASE_MS = 3_000;
/** Where the records of the role stand. */
export const COORDINATION = { topic: "__coordination_state", partition: partitionForRole(ROLE) };

/** A process with a client of its own on the shared cluster. */
export interface Member {
  readonly id: MemberId;
  readonly client: CoordinationClient;
  readonly transport: FakeTransport;
  readonly clock: ManualClock;
}

export interface MemberOptions extends ClientOptions {
  readonly transport?: Partial<FakeTransportOptions>;
  /** How far the member's wall clock is ahead of the others'. */
  readonly wallAheadMs?: number;
}

/** A fake cluster and members, in time that only moves when the test says so. */
export class World {
  readonly clock = new ManualClock();
  readonly cluster = new FakeCluster({ clock: this.clock, latencyMs: () => 1 });
  readonly #leaseRecords: "append" | "transaction";

  constructor(leaseRecords: "append" | "transaction" = "append") {
    this.#leaseRecords = leaseRecords;
    this.cluster.createTopic("commands", { partitions: 2 });
  }

  member(name: string, options: MemberOptions = {}): Member {
    const { transport: transportOptions, wallAheadMs = 0, ...clientOptions } = options;
    const clock = this.clock.fork({ wallMs: this.clock.wallMs() + wallAheadMs });
    const transport = new FakeTransport({
      cluster: this.cluster,
      clock,
      clientId: name,
      leaseRecords: this.#leaseRecords,
      ...transportOptions,
    });
    const client = new CoordinationClient(transport, { leaseMs: LEASE_MS, clock, ...clientOptions });
    return { id: MemberId.of(name), client, transport, clock };
  }

  /** Runs time until `promise` settles. */
  settle<T>(promise: Promise<T>): Promise<T> {
    promise.catch(() => undefined);
    return this.clock.settle(promise);
  }

  async advance(ms: number): Promise<void> {
    await this.clock.advance(ms);
  }

  /** Number of requests of a kind so far. */
  count(api: string, clientId?: string): number {
    return this.cluster.requests.filter(
      (call) => call.api === api && (clientId === undefined || call.clientId === clientId),
    ).length;
  }
}

/** The committed values in the first partition of the commands. */
export const values = (world: World) =>
  world.cluster.read({ topic: "commands", partition: 0 }).map(({ value }) => Buffer.from(value ?? []).toString());

/** The lease records that were committed for the role. */
export const leases = (world: World) =>
  recordsOf(world.cluster.read(COORDINATION)).filter((entry) => entry.kind === "lease");

/** Closes the members' clients. */
export const end = (world: World, ...members: Member[]) =>
  world.settle(Promise.all(members.map(({ client }) => client.close())));
