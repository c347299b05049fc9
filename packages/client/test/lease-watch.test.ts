import { type HeldLease, MemberId, Role, RoleState } from "@krabka/core";
import { ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { LeaseWatch } from "../src/lease-watch.js";

const LEASE_MS = 3_000;
const role = Role.of("controller");

/** The state after the holder's lease record at `offset`. */
const stateAt = (clock: ManualClock, offset: bigint) => {
  const nowMs = BigInt(clock.wallMs());
  const state = RoleState.fold(role, [
    {
      kind: "lease",
      role,
      member: MemberId.of("holder"),
      pair: { producerId: 1n, epoch: 0 },
      term: undefined,
      grantedAtMs: nowMs,
      deadlineMs: nowMs + BigInt(LEASE_MS),
      attributes: {},
      offset,
    },
  ]);
  return { state, lease: state.lease as HeldLease };
};

describe("the time of a holder", () => {
  const world = async () => {
    const clock = new ManualClock();
    const watch = new LeaseWatch(clock, LEASE_MS);
    const { state, lease } = stateAt(clock, 5n);
    watch.heard(lease, true);
    const restMs = () =>
      Number(lease.deadlineMs - watch.nowMs(state, { entry: undefined, registeredAtMonotonicMs: 0 }));
    return { clock, watch, lease, restMs };
  };

  it("starts again when a record was written that is not committed yet, though it is seen later", async () => {
    const { clock, watch, lease, restMs } = await world();
    await clock.advance(2_000);
    expect(restMs()).toBe(1_000);
    watch.signOfLife({ offset: 6n, grantedAtMs: lease.grantedAtMs + 1_000n });
    expect(restMs()).toBe(2_000);
    await clock.advance(500);
    watch.signOfLife({ offset: 7n, grantedAtMs: lease.grantedAtMs + 2_250n });
    expect(restMs()).toBe(2_750);
  });

  it("starts again when such a record is seen, where the holder's clock was set meanwhile", async () => {
    const { clock, watch, lease, restMs } = await world();
    await clock.advance(2_000);
    watch.signOfLife({ offset: 6n, grantedAtMs: lease.grantedAtMs - 3_600_000n });
    expect(restMs()).toBe(3_000);
    await clock.advance(2_000);
    watch.signOfLife({ offset: 7n, grantedAtMs: lease.grantedAtMs });
    expect(restMs()).toBe(3_000);
  });

  it("goes on when the same uncommitted record is seen again and again", async () => {
    const { clock, watch, lease, restMs } = await world();
    for (let look = 0; look < 10; look++) {
      watch.signOfLife({ offset: 6n, grantedAtMs: lease.grantedAtMs - 1n });
      // Told with every record of the role, such as a registration.
      watch.heard(lease, true);
      await clock.advance(250);
    }
    expect(restMs()).toBe(500);
  });
});
