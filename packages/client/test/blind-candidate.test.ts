import { expect, it } from "vitest";
import { recordsOf } from "./simulation/coordination-log.js";
import { COORDINATION, ROLE, World } from "./world.js";

const IMPATIENT = { transport: { requestTimeoutMs: 3_000 } };

const registrationsOf = (world: World, member: string): number =>
  recordsOf(world.cluster.read(COORDINATION)).filter(
    (entry) => entry.kind === "registration" && entry.member === member,
  ).length;

it("a candidate that can't read the log yet does not register", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b", IMPATIENT)];
  const first = await world.settle(a.client.acquire(ROLE, a.id));
  const blind = world.cluster.faults.inject({ api: "Fetch", clientId: "b", action: { kind: "hold-answer" } });
  const second = b.client.acquire(ROLE, b.id);
  await world.advance(20_000);
  expect(blind.hits).toBe(1);
  expect(registrationsOf(world, "b")).toBe(0);
  blind.release();
  await world.advance(5_000);
  expect(registrationsOf(world, "b")).toBe(1);
  await world.settle(first.resign());
  expect((await world.settle(second)).isLeader).toBe(true);
});

it("a candidate that does not see its own registration for long keeps its place, and registers no second time", async () => {
  const world = new World();
  const a = world.member("a", IMPATIENT);
  const blind = world.cluster.faults.inject({ api: "Fetch", clientId: "a", action: { kind: "hold-answer" } });
  const acquired = a.client.acquire(ROLE, a.id);
  await world.advance(20_000);
  expect(blind.hits).toBe(1);
  expect(registrationsOf(world, "a")).toBe(1);
  blind.release();
  expect((await world.settle(acquired)).isLeader).toBe(true);
  expect(registrationsOf(world, "a")).toBe(1);
});
