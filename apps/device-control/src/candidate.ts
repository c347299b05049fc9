import { CoordinationClient, MemberId, Role } from "@krabka/client";
import type { TransportName } from "./backends/backend.js";
import { openTransport } from "./backends/candidate-transport.js";
import { CONTROLLER_ROLE } from "./command.js";
import { Controller } from "./controller.js";
import type { FromCandidate, ToCandidate } from "./messages.js";
import { SuspendableClock } from "./suspendable-clock.js";

// One candidate for the role, as a process.

const [name, transportName, address, topic, leaseMs, ...devices] = process.argv.slice(2) as [
  string,
  TransportName,
  string,
  string,
  string,
  ...string[],
];
const clock = new SuspendableClock();
const transport = await openTransport({ transport: transportName, address }, name, clock);
const client = new CoordinationClient(transport, { leaseMs: Number(leaseMs), clock });

const tell = (message: FromCandidate) =>
  new Promise<void>((resolve) => {
    process.send?.(message, undefined, undefined, () => resolve());
  });
const controller = new Controller({ topic, devices, clock, tell });
const leaving = new AbortController();

process.on("message", ({ kind }: ToCandidate) => {
  if (kind === "leave") leaving.abort();
  else if (kind === "resign") controller.resign();
  else controller.suspend();
});
process.on("disconnect", () => process.exit(1));

try {
  void tell({ kind: "ready" });
  const handler = controller.lead.bind(controller);
  await client.campaign(Role.of(CONTROLLER_ROLE), MemberId.of(name), handler, { signal: leaving.signal });
} catch (error) {
  await tell({ kind: "failed", error: String(error) });
  process.exitCode = 1;
} finally {
  await client.close();
  process.disconnect();
}
