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

  it("starts again at a record that is not committed yet", async () => {
    const { clock, watch, restMs } = await world();
    await clock.advance(2_000);
    expect(restMs()).toBe(1_000);
    watch.signOfLife(6n);
    expect(restMs()).toBe(3_000);
    await clock.advance(500);
    watch.signOfLife(7n);
    expect(restMs()).toBe(3_000);
  });

  it("goes on when the same uncommitted record is seen again and again", async () => {
    const { clock, watch, lease, restMs } = await world();
    watch.signOfLife(6n);
    for (let look = 0; look < 10; look++) {
      await clock.advance(250);
      watch.signOfLife(6n);
      // Told with every record of the role, such as a registration.
      watch.heard(lease, true);
    }
    expect(restMs()).toBe(500);
  });
});
