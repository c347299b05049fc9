import { seedsToRun } from "@krabka/testing";
import { describe, it } from "vitest";
import { Failovers } from "./failovers.js";

describe("failovers under random faults", () => {
  for (const seed of seedsToRun(20)) {
    it(`keeps one writer a role and finds back to it (seed ${seed})`, async () => {
      const failovers = new Failovers(seed);
      const tally = await failovers.run();
      if (process.env.KRABKA_TALLY) console.log(seed, JSON.stringify(tally));
    });
  }
});
