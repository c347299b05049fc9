import { Role } from "@krabka/core";
import {
  CLIENT_APIS,
  everyFault,
  type FaultAction,
  faultAt,
  SEEDS_VARIABLE,
  Simulation,
  showFault,
} from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { Stage } from "./stage.js";

const ROLE = Role.of("controller");

/** All kinds of fault that any request can meet. */
const ACTIONS = [...new Map(CLIENT_APIS.flatMap(everyFault).map((action) => [showFault(action), action])).values()];

/** All requests are hit when a long run is asked for; else each by some of the faults. */
const STRIDE = process.env[SEEDS_VARIABLE] === undefined ? 9 : 1;

interface Hit {
  readonly index: number;
  readonly action: FaultAction;
}

/**
 * One member leads, writes, renews, resigns; the other takes over. `hit` is what goes wrong with one of the first one's
 * requests.
 *
 * @returns how many requests the first member sent
 */
async function play(leaseRecords: "append" | "transaction", hit?: Hit): Promise<number> {
  const simulation = new Simulation({ seed: 1 });
  const stage = new Stage({ simulation, roles: [ROLE], leaseRecords, cluster: { latencyMs: () => 1 } });
  const { cluster, ledger, handles } = stage;
  await simulation.whole(async () => {
    const first = `first.${stage.members.length}`;
    const faults =
      hit === undefined
        ? []
        : faultAt(cluster, first, hit.index, hit.action, ({ api }) =>
            simulation.trace.add(first, `${showFault(hit.action)} ${api}`),
          );
    stage.start("first");
    await simulation.advance(100, 10);
    stage.start("second");
    for (let part = 0; part < 4; part++) {
      for (const leader of handles.awake) {
        for (let count = 0; count < 2; count++) stage.track(leader, ledger.write(leader, [0, 1]));
      }
      await simulation.advance(400, 10);
      ledger.check();
    }
    for (const leader of handles.awake) {
      stage.track(leader, ledger.write(leader, [1]));
      stage.track(
        leader,
        leader.resign().catch(() => undefined),
      );
    }
    await simulation.advance(2_000, 20);
    for (const fault of faults) fault.release();
    await stage.calm({ slackMs: 3_000, leases: 1 });
    await stage.leave();
  });
  return cluster.requests.filter(({ clientId }) => clientId === "first.0").length;
}

describe.each(["append", "transaction"] as const)("a single fault, with lease records as %s", (leaseRecords) => {
  it.each(ACTIONS.map((action) => [showFault(action), action] as const))(
    "%s: whichever request it hits, one leads, each write is told the truth, and nothing is left behind",
    async (_, action) => {
      const requests = await play(leaseRecords);
      expect(requests).toBeGreaterThan(40);
      for (let index = ACTIONS.indexOf(action) % STRIDE; index < requests; index += STRIDE) {
        await play(leaseRecords, { index, action });
      }
    },
    300_000,
  );
});
