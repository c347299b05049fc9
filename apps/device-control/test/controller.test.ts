import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { EmbeddedTransport } from "@krabka/local";
import { expect, it } from "vitest";
import { Controller } from "../src/controller.js";
import type { FromCandidate } from "../src/messages.js";
import { SuspendableClock } from "../src/suspendable-clock.js";

/** Campaigns on a log of its own with one device that answers `status`, until the role was lost `losses` times. */
const campaign = async (status: number, losses: number): Promise<readonly FromCandidate[]> => {
  const directory = await mkdtemp(join(tmpdir(), "controller-"));
  const device = createServer((_, response) => response.writeHead(status).end());
  await new Promise<void>((resolve) => device.listen(0, "127.0.0.1", resolve));
  const transport = await EmbeddedTransport.open({ directory, topics: { commands: 1 } });
  const client = new CoordinationClient(transport, { leaseMs: 5_000 });
  const stop = new AbortController();
  const told: FromCandidate[] = [];
  const controller = new Controller({
    topic: "commands",
    devices: [`http://127.0.0.1:${(device.address() as AddressInfo).port}`],
    clock: new SuspendableClock(),
    tell: async (message) => {
      told.push(message);
      if (told.filter(({ kind }) => kind === "lost").length === losses) stop.abort();
    },
  });
  try {
    const handler = controller.lead.bind(controller);
    await client.campaign(Role.of("controller"), MemberId.of("a"), handler, { signal: stop.signal });
    return told;
  } finally {
    await client.close();
    device.close();
    await rm(directory, { recursive: true });
  }
};

it("a device that knows a later leader ends the term, and the candidate stands again", async () => {
  const told = await campaign(409, 2);
  expect(told.filter(({ kind }) => kind === "leading").length).toBeGreaterThanOrEqual(2);
  expect(told.filter(({ kind }) => kind === "dispatched")).toEqual([]);
});

it("a device that fails in another way ends the campaign with its error", async () => {
  await expect(campaign(500, 2)).rejects.toThrow("The device answered 500");
});
