import { setTimeout as sleep } from "node:timers/promises";
import { CoordinationClient, type FencingToken, KrabkaError, type Leadership, MemberId, Role } from "@krabka/client";
import type { TransportName } from "./backends/backend.js";
import { openTransport } from "./backends/candidate-transport.js";
import { CONTROLLER_ROLE, type Command } from "./command.js";
import { DispatchRefused, dispatch } from "./dispatch.js";
import type { FromCandidate, ToCandidate } from "./messages.js";
import { SuspendableClock } from "./suspendable-clock.js";

// One candidate for the role: while it leads, it writes a command, and once that is durable, dispatches it.

/** Long enough for the run to stop the process in between. */
const SUSPEND_MS = 1_000;
const PACE_MS = 20;

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

const tell = (message: FromCandidate) => process.send?.(message);
const leaving = new AbortController();
let leading: Leadership | undefined;
let sequence = 0;

const nextCommand = (): { readonly command: Command; readonly url: string } => {
  sequence += 1;
  const index = sequence % devices.length;
  return {
    command: { device: `device-${index}`, sequence, setpoint: Math.round(Math.random() * 100) },
    url: devices[index] as string,
  };
};

const writeCommand = (leadership: Leadership, command: Command) =>
  leadership.write({ topic, key: command.device, value: JSON.stringify(command) });

const lead = async (leadership: Leadership, signal: AbortSignal): Promise<void> => {
  leading = leadership;
  const token = String(leadership.token);
  tell({ kind: "leading", token });
  leadership.signal.addEventListener("abort", () => {
    tell({ kind: "lost", token, reason: leadership.loss?.reason ?? "unknown" });
  });
  while (!signal.aborted) {
    const { command, url } = nextCommand();
    await writeCommand(leadership, command);
    tell({ kind: "written", token: String(leadership.token) });
    await dispatch(url, command, leadership.token);
    tell({ kind: "dispatched", device: command.device });
    await sleep(PACE_MS);
  }
};

/** What became of something that a stale leader tried. */
const attempt = async (action: Promise<unknown>): Promise<string> => {
  try {
    await action;
    return "accepted";
  } catch (error) {
    if (KrabkaError.is(error)) return error.code;
    if (error instanceof DispatchRefused) return "REFUSED";
    throw error;
  }
};

const sleepAndWake = async (leadership: Leadership, token: FencingToken): Promise<void> => {
  const { command, url } = nextCommand();
  // The message must be out before the process blocks.
  await new Promise<void>((resolve) => {
    const suspending: FromCandidate = { kind: "suspending" };
    process.send?.(suspending, undefined, undefined, () => resolve());
  });
  clock.suspend(SUSPEND_MS);
  // Nothing that came in meanwhile has been read yet: the process is exactly as sure of its role as before.
  const believesToLead = leadership.isLeader;
  const [write, dispatched] = await Promise.all([
    attempt(writeCommand(leadership, command)),
    attempt(dispatch(url, command, token)),
  ]);
  tell({ kind: "woke", believesToLead, write, dispatch: dispatched });
};

process.on("message", (message: ToCandidate) => {
  if (message.kind === "leave") leaving.abort();
  else if (leading !== undefined && message.kind === "resign") void leading.resign();
  else if (leading !== undefined) void sleepAndWake(leading, leading.token);
});
process.on("disconnect", () => process.exit(1));

const handler = async (leadership: Leadership, signal: AbortSignal): Promise<void> => {
  try {
    await lead(leadership, signal);
  } catch (error) {
    // A lost role ends the work; anything else is a fault of this program.
    if (!signal.aborted) throw error;
  }
};

try {
  tell({ kind: "ready" });
  await client.campaign(Role.of(CONTROLLER_ROLE), MemberId.of(name), handler, { signal: leaving.signal });
} catch (error) {
  tell({ kind: "failed", error: String(error) });
  process.exitCode = 1;
} finally {
  await client.close();
  process.disconnect();
}
