import { describe, expect, it } from "vitest";
import {
  FakeCluster,
  FakeTransport,
  faultAt,
  ManualClock,
  SeededRandom,
  Simulation,
  seedsToRun,
} from "../src/index.js";

describe("seeded numbers", () => {
  it("are the same for the same seed and others for another one", () => {
    const draw = (seed: number) => {
      const random = new SeededRandom(seed);
      return Array.from({ length: 20 }, () => random.between(1, 1_000_000));
    };
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
  });

  it("cover a range with both its ends", () => {
    const random = new SeededRandom(1);
    const drawn = new Set(Array.from({ length: 500 }, () => random.between(3, 6)));
    expect([...drawn].sort()).toEqual([3, 4, 5, 6]);
  });
});

describe("seedsToRun", () => {
  it("gives the seed that the environment names, or as many as it asks for", () => {
    expect(seedsToRun(2, {})).toEqual([1, 2]);
    expect(seedsToRun(2, { KRABKA_SEEDS: "3" })).toEqual([1, 2, 3]);
    expect(seedsToRun(2, { KRABKA_SEEDS: "3", KRABKA_SEED: "41" })).toEqual([41]);
    expect(() => seedsToRun(2, { KRABKA_SEED: "many" })).toThrow('KRABKA_SEED must be a whole number >= 0; got "many"');
  });
});

describe("a simulation", () => {
  const eventsOf = (simulation: Simulation) =>
    ["often", "seldom"].map((name, index) => ({
      name,
      weight: index === 0 ? 9 : 1,
      run: () => `at ${Math.random()} ${simulation.random.next()}`,
    }));

  const storm = async (seed: number) => {
    const simulation = new Simulation({ seed });
    await simulation.whole(() => simulation.storm(eventsOf(simulation), 1_000, 10));
    return simulation.trace.lines;
  };

  it("is the same in each run of a seed, jitter of Math.random included", async () => {
    expect(await storm(3)).toEqual(await storm(3));
    expect(await storm(3)).not.toEqual(await storm(4));
  });

  it("draws events by their weight", async () => {
    const seldom = (await storm(3)).filter((line) => line.includes("seldom")).length;
    expect(seldom).toBeGreaterThan(0);
    expect(seldom).toBeLessThan((await storm(3)).length / 4);
  });

  it("says which invariant broke, what led to it and how to see it again, and gives Math.random back", async () => {
    const { random } = Math;
    const simulation = new Simulation({ seed: 9 });
    let broken = false;
    simulation.always({
      name: "all is well",
      check: () => {
        if (broken) throw new Error("it is not");
      },
    });
    const run = simulation.whole(async () => {
      await simulation.advance(100, 10);
      simulation.trace.add("somebody", "breaks it");
      broken = true;
      await simulation.advance(100, 10);
    });
    await expect(run).rejects.toThrow(
      /^Broken: all is well: it is not\nReplay it with KRABKA_SEED=9\. .*\n {5}100\.0 somebody {5}breaks it$/s,
    );
    expect(Math.random).toBe(random);
    expect(simulation.clock.monotonicMs()).toBe(110);
  });
});

it("a fault at the n-th request of a client hits that one alone, whatever it asks", async () => {
  const asked = async (index?: number) => {
    const clock = new ManualClock();
    const cluster = new FakeCluster({ clock });
    const transport = new FakeTransport({ cluster, clientId: "a" });
    const seen: string[] = [];
    if (index !== undefined) faultAt(cluster, "a", index, { kind: "lose-answer" }, ({ api }) => seen.push(api));
    await clock.settle(transport.prepare());
    await clock.settle(transport.close());
    return { seen, requests: cluster.requests.map(({ api }) => api) };
  };
  const { requests } = await asked();
  expect(requests).toEqual(["CreateTopics", "DescribeConfigs"]);
  expect(await asked(0)).toEqual({ seen: ["CreateTopics"], requests: ["CreateTopics", ...requests] });
  expect(await asked(1)).toEqual({ seen: ["DescribeConfigs"], requests: [...requests, "DescribeConfigs"] });
});
