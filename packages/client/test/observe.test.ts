import { describe, expect, it } from "vitest";
import { LEASE_MS, ROLE, World } from "./world.js";

it("I3: an observer that starts late sees the leader first, and then that there is none", async () => {
  const world = new World();
  const [a, watcher] = [world.member("a"), world.member("watcher")];
  const leadership = await world.settle(a.client.acquire(ROLE, a.id, { attributes: { address: "10.0.0.7:80" } }));
  await world.advance(3_600_000);
  const views = watcher.client.observe(ROLE);
  const first = (await world.settle(views.next())).value;
  expect(first?.leader).toMatchObject({ member: "a", attributes: { address: "10.0.0.7:80" } });
  expect(first?.leader?.token.equals(leadership.token)).toBe(true);
  await world.settle(leadership.resign());
  let view = (await world.settle(views.next())).value;
  while (view?.leader !== undefined) view = (await world.settle(views.next())).value;
  expect(view?.roster).toEqual([]);
  await views.return();
  await world.settle(Promise.all([a.client.close(), watcher.client.close()]));
  expect(watcher.clock.pendingTimers).toBe(0);
});

it("an observer notices by itself that a silent leader's lease ran out", async () => {
  const world = new World();
  const [a, watcher] = [world.member("a"), world.member("watcher")];
  await world.settle(a.client.acquire(ROLE, a.id));
  const views = watcher.client.observe(ROLE);
  await world.settle(views.next());
  a.clock.freeze();
  a.transport.freeze();
  let view = (await world.settle(views.next())).value;
  while (view?.leader !== undefined) view = (await world.settle(views.next())).value;
  expect(view?.roster.map(({ member }) => member)).toEqual(["a"]);
  await views.return();
  a.transport.thaw();
  a.clock.resume();
  await world.settle(Promise.all([a.client.close(), watcher.client.close()]));
});

describe("clocks that disagree", () => {
  it("E2: a member whose wall clock is an hour fast or slow deposes nobody, and takes over in time", async () => {
    for (const survivor of [-3_600_000, 0, 3_600_000]) {
      const world = new World();
      const leader = world.member("leader");
      const first = await world.settle(leader.client.acquire(ROLE, leader.id));
      const standby = world.member("standby", { wallAheadMs: survivor });
      const next = standby.client.acquire(ROLE, standby.id);
      await world.advance(LEASE_MS * 20);
      expect(first.isLeader).toBe(true);
      leader.clock.freeze();
      leader.transport.freeze();
      const fromMs = world.clock.monotonicMs();
      await world.settle(next);
      expect(world.clock.monotonicMs() - fromMs).toBeLessThanOrEqual(LEASE_MS + LEASE_MS / 3);
      leader.transport.thaw();
      leader.clock.resume();
      await world.settle(Promise.all([leader.client.close(), standby.client.close()]));
    }
  });

  it("F3: a lease that ran out long ago keeps nobody waiting, whatever the wall clock says", async () => {
    for (const wallAheadMs of [-3_600_000, 0]) {
      const world = new World();
      const leader = world.member("leader");
      await world.settle(leader.client.acquire(ROLE, leader.id));
      leader.clock.freeze();
      leader.transport.freeze();
      await world.advance(600_000);
      const late = world.member("late", { wallAheadMs });
      const fromMs = world.clock.monotonicMs();
      await world.settle(late.client.acquire(ROLE, late.id));
      expect(world.clock.monotonicMs() - fromMs).toBeLessThan(100);
      leader.transport.thaw();
      leader.clock.resume();
      await world.settle(Promise.all([leader.client.close(), late.client.close()]));
    }
  });

  it("E8: a wall clock that is set back or forward under a leader changes nothing", async () => {
    const world = new World();
    const [a, b] = [world.member("a"), world.member("b")];
    const first = await world.settle(a.client.acquire(ROLE, a.id));
    b.client.acquire(ROLE, b.id).catch(() => undefined);
    for (const step of [-3_600_000, 7_200_000]) {
      await world.advance(LEASE_MS);
      a.clock.stepWall(step);
      await world.advance(LEASE_MS * 10);
      expect(first.isLeader).toBe(true);
    }
    await world.settle(Promise.all([a.client.close(), b.client.close()]));
  });
});
