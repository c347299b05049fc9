import { MemberId } from "@krabka/core";
import { FakeCluster, FakeTransport, ManualClock } from "@krabka/testing";
import { expect, it } from "vitest";
import { CoordinationClient } from "../src/index.js";
import { ROLE } from "./world.js";

/** Latencies of 20 to 60 ms, the same in each run. */
function slowNetwork(): () => number {
  let state = 1;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return 20 + (state % 40);
  };
}

it("many candidates whose takeovers take longer than a stagger let one of them lead", async () => {
  const clock = new ManualClock();
  const cluster = new FakeCluster({ clock, latencyMs: slowNetwork() });
  const members = Array.from({ length: 20 }, (_, index) => {
    const transport = new FakeTransport({ cluster, clock, clientId: `m${index}`, leaseRecords: "transaction" });
    return { id: MemberId.of(`m${index}`), client: new CoordinationClient(transport, { leaseMs: 600, clock }) };
  });
  const candidates = members.map(({ client, id }) => client.acquire(ROLE, id));
  for (const candidate of candidates) candidate.catch(() => undefined);
  await clock.settle(Promise.race(candidates));
  expect(clock.monotonicMs()).toBeLessThan(30_000);
  expect(cluster.requests.filter(({ api }) => api === "InitProducerId").length).toBeLessThan(1_000);
  await clock.settle(Promise.all(members.map(({ client }) => client.close())));
});
