import { FencedError } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { LEASE_MS, ROLE, World } from "./world.js";

const INVALID_RECORD = 87;
const TRANSACTION_ABORTABLE = 120;
const UNHEARD_OF = 9_999;
const record = { topic: "commands", value: "x", partition: 0 };

/** Every Produce into the commands fails, and every abort after it is refused. */
const failForEver = (world: World, abortCode: number) => {
  const isCommand = ({ ask }: { ask: unknown }) => (ask as { topic?: string }).topic === record.topic;
  const isAbort = ({ ask }: { ask: unknown }) => !(ask as { commit: boolean }).commit;
  const always = { clientId: "a", times: Number.POSITIVE_INFINITY } as const;
  world.cluster.faults.inject({
    ...always,
    api: "Produce",
    action: { kind: "error", code: INVALID_RECORD },
    matches: isCommand,
  });
  return world.cluster.faults.inject({
    ...always,
    api: "EndTxn",
    action: { kind: "error", code: abortCode },
    matches: isAbort,
  });
};

const aborts = (world: World): number =>
  world.cluster.requests.filter(
    ({ api, clientId, ask }) => api === "EndTxn" && clientId === "a" && !(ask as { commit: boolean }).commit,
  ).length;

describe.each(["append", "transaction"] as const)("an abort that is refused for ever (%s)", (mode) => {
  it.each([TRANSACTION_ABORTABLE, UNHEARD_OF])(
    "B13: is asked for at most 3 times, the first error is told, and the role goes to the next member (code %i)",
    async (abortCode) => {
      const world = new World(mode);
      const [a, b] = [world.member("a"), world.member("b")];
      const leadership = await world.settle(a.client.acquire(ROLE, a.id));
      const next = b.client.acquire(ROLE, b.id);
      next.catch(() => undefined);
      await world.advance(100);
      failForEver(world, abortCode);
      const failure = await world.settle(leadership.write(record).catch((error: unknown) => error));
      expect(failure).toMatchObject({
        code: "NOT_COMMITTED",
        message: expect.stringContaining(`${INVALID_RECORD}`),
        cause: {
          message: expect.stringContaining(`${INVALID_RECORD}`),
          cause: { message: expect.stringContaining(`${abortCode}`) },
        },
      });
      const again = await world.settle(leadership.write(record).catch((error: unknown) => error));
      expect(FencedError.is(again)).toBe(true);
      expect(leadership.loss?.reason).toBe("fenced");
      const successor = await world.settle(next);
      await world.settle(successor.write({ ...record, value: "successor" }));
      expect(aborts(world)).toBeGreaterThan(0);
      expect(aborts(world)).toBeLessThanOrEqual(3);
      await world.settle(Promise.all([a.client.close(), b.client.close()]));
    },
  );

  it("B13: ends the term at the next renewal, if nothing is written before", async () => {
    const world = new World(mode);
    const a = world.member("a");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    failForEver(world, TRANSACTION_ABORTABLE);
    await world.settle(leadership.write(record).catch(() => undefined));
    await world.advance(LEASE_MS / 2);
    expect(leadership.loss?.reason).toBe("fenced");
    expect(aborts(world)).toBeLessThanOrEqual(3);
    await world.settle(a.client.close());
  });

  it("B13: one that works the second time costs an epoch and nothing else", async () => {
    const world = new World(mode);
    const a = world.member("a");
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    const before = leadership.token;
    world.cluster.faults.inject({ api: "Produce", clientId: "a", action: { kind: "error", code: INVALID_RECORD } });
    world.cluster.faults.inject({ api: "EndTxn", clientId: "a", action: { kind: "error", code: UNHEARD_OF } });
    await expect(world.settle(leadership.write(record))).rejects.toMatchObject({ code: "NOT_COMMITTED" });
    await world.settle(leadership.write({ ...record, value: "y" }));
    expect(leadership.token.compareTo(before)).toBe(1);
    expect(world.count("InitProducerId", "a")).toBe(2);
    await world.settle(a.client.close());
  });
});
