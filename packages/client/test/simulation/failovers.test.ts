import { seedsToRun } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { Failovers } from "./failovers.js";

describe("failovers under random faults", () => {
  for (const seed of seedsToRun(12)) {
    it(`keep one writer a role, which is found again when they end (seed ${seed})`, async () => {
      const { committed } = await new Failovers(seed).run();
      expect(committed).toBeGreaterThan(0);
    });
  }

  it("are the same in each run of a seed", async () => {
    const traces: (readonly string[])[] = [];
    for (let run = 0; run < 2; run++) {
      const failovers = new Failovers(5);
      await failovers.run();
      traces.push(failovers.simulation.trace.lines);
    }
    expect(traces[0]).toEqual(traces[1]);
  });
});
