import { DuplicateMemberError, FencingToken } from "@krabka/core";
import { expect, it } from "vitest";
import type { Leadership } from "../src/index.js";
import { LEASE_MS, ROLE, World } from "./world.js";

const until = (signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });

it("leads again and again until it is aborted, and handlers never overlap", async () => {
  const world = new World();
  const a = world.member("a");
  const stop = new AbortController();
  const terms: bigint[] = [];
  let running = 0;
  const done = a.client.campaign(
    ROLE,
    a.id,
    async (leadership, signal) => {
      running += 1;
      expect(running).toBe(1);
      terms.push(leadership.token.term);
      await until(signal);
      await new Promise<void>((resolve) => a.clock.setTimer(50, resolve));
      running -= 1;
    },
    { signal: stop.signal },
  );
  for (let i = 0; i < 3; i++) {
    await world.advance(LEASE_MS * 2);
    world.cluster.mint(ROLE);
  }
  await world.advance(LEASE_MS * 2);
  stop.abort();
  await world.settle(done);
  expect(terms).toHaveLength(4);
  expect([...terms].sort((x, y) => (x < y ? -1 : 1))).toEqual(terms);
  await world.settle(a.client.close());
});

it("E12: a handler that throws gives the role up once, and its error ends the campaign", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b")];
  const fault = new Error("no work today");
  let handle: Leadership | undefined;
  const campaign = a.client.campaign(ROLE, a.id, async (leadership) => {
    handle = leadership;
    await new Promise<void>((resolve) => a.clock.setTimer(1_000, resolve));
    throw fault;
  });
  campaign.catch(() => undefined);
  await world.advance(100);
  const next = b.client.acquire(ROLE, b.id);
  await expect(world.settle(campaign)).rejects.toBe(fault);
  expect(handle?.loss?.reason).toBe("handler-failed");
  expect((await world.settle(next)).isLeader).toBe(true);
  await world.settle(Promise.all([a.client.close(), b.client.close()]));
});

it("a member that returns from its handler lets a standby go first", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b")];
  const stop = new AbortController();
  const order: string[] = [];
  const campaigns = [a, b].map(({ client, id, clock }) =>
    client.campaign(
      ROLE,
      id,
      async () => {
        order.push(id);
        await new Promise<void>((resolve) => clock.setTimer(2_000, resolve));
      },
      { signal: stop.signal },
    ),
  );
  await world.advance(9_000);
  stop.abort();
  await world.settle(Promise.all(campaigns));
  expect(order.slice(0, 4)).toEqual(["a", "b", "a", "b"]);
  await world.settle(Promise.all([a.client.close(), b.client.close()]));
});

it("A13: two processes with one member id end with a report, not with a fight", async () => {
  const world = new World();
  const [one, two] = [world.member("same"), world.member("same")];
  const stop = new AbortController();
  let led = 0;
  const handler = async (_: Leadership, signal: AbortSignal) => {
    led += 1;
    await until(signal);
  };
  const first = one.client.campaign(ROLE, one.id, handler, { signal: stop.signal });
  const failed = first.catch((error: unknown) => error);
  await world.advance(100);
  const second = two.client.campaign(ROLE, two.id, handler, { signal: stop.signal });
  await world.advance(300_000);
  expect(await world.settle(failed)).toBeInstanceOf(DuplicateMemberError);
  expect(led).toBe(2);
  stop.abort();
  await world.settle(second);
  await world.settle(Promise.all([one.client.close(), two.client.close()]));
});

it("F6: after 20 losses in a row it is a leader again each time", async () => {
  const world = new World();
  const a = world.member("a");
  const stop = new AbortController();
  const tokens: FencingToken[] = [];
  const done = a.client.campaign(
    ROLE,
    a.id,
    async (leadership, signal) => {
      tokens.push(leadership.token);
      await until(signal);
    },
    { signal: stop.signal },
  );
  for (let i = 0; i < 20; i++) {
    await world.advance(LEASE_MS * 2);
    expect(tokens).toHaveLength(i + 1);
    if (i % 2 === 0) world.cluster.mint(ROLE);
    else {
      a.transport.freeze();
      await world.advance(LEASE_MS + 1);
      a.transport.thaw();
    }
  }
  await world.advance(LEASE_MS * 3);
  stop.abort();
  await world.settle(done);
  for (let i = 1; i < tokens.length; i++) {
    expect(FencingToken.compare(tokens[i] as FencingToken, tokens[i - 1] as FencingToken)).toBe(1);
  }
  await world.settle(a.client.close());
});

it("A11: a leader that was frozen never mints before it has read the role again", async () => {
  const world = new World();
  const [a, b] = [world.member("a"), world.member("b")];
  const stop = new AbortController();
  const work = async (_: Leadership, signal: AbortSignal) => until(signal);
  const campaign = a.client.campaign(ROLE, a.id, work, { signal: stop.signal });
  await world.advance(100);
  const next = b.client.acquire(ROLE, b.id);
  await world.advance(100);
  a.clock.freeze();
  a.transport.freeze();
  const second = await world.settle(next);
  await world.advance(LEASE_MS * 2);
  const minted = world.count("InitProducerId", "a");
  a.transport.thaw();
  a.clock.resume();
  await world.advance(LEASE_MS * 5);
  expect(world.count("InitProducerId", "a")).toBe(minted);
  expect(second.loss).toBeUndefined();
  stop.abort();
  await world.settle(campaign);
  await world.settle(Promise.all([a.client.close(), b.client.close()]));
});

it.each(["while the handler runs", "while it lets others go first"])(
  "ends at once with CLOSED when the client is closed %s",
  async (moment) => {
    const world = new World();
    const a = world.member("a", { staggerMs: 60_000 });
    const handler = (_: Leadership, signal: AbortSignal) =>
      moment === "while the handler runs" ? until(signal) : Promise.resolve();
    const campaign = a.client.campaign(ROLE, a.id, handler);
    campaign.catch(() => undefined);
    await world.advance(100);
    await world.settle(a.client.close());
    const closedAtMs = world.clock.monotonicMs();
    await expect(world.settle(campaign)).rejects.toMatchObject({ code: "CLOSED" });
    expect(world.clock.monotonicMs() - closedAtMs).toBe(0);
  },
);
