import { setTimeout as sleep } from "node:timers/promises";
import { type FencingToken, KrabkaError, type Leadership } from "@krabka/client";
import type { Command } from "./command.js";
import { DispatchRefused, dispatch } from "./dispatch.js";
import type { FromCandidate } from "./messages.js";
import type { SuspendableClock } from "./suspendable-clock.js";

/** Long enough for the run to stop the process in between. */
const SUSPEND_MS = 1_000;
const PACE_MS = 20;

export interface ControllerParts {
  readonly topic: string;
  /** Where each device takes its commands. */
  readonly devices: readonly string[];
  readonly clock: SuspendableClock;
  /** Resolves once the message is out. */
  readonly tell: (message: FromCandidate) => Promise<void>;
}

/** What a leader does: it writes a command, and once that is durable, dispatches it. */
export class Controller {
  readonly #parts: ControllerParts;
  #leading: Leadership | undefined;
  #sequence = 0;
  #suspendNext = false;

  constructor(parts: ControllerParts) {
    this.#parts = parts;
  }

  /** Handler of a campaign. Returns when the role is lost, or when a device says that it was. */
  async lead(leadership: Leadership, signal: AbortSignal): Promise<void> {
    this.#leading = leadership;
    const token = String(leadership.token);
    void this.#parts.tell({ kind: "leading", token });
    leadership.signal.addEventListener("abort", () => {
      void this.#parts.tell({ kind: "lost", token, reason: leadership.loss?.reason ?? "unknown" });
    });
    try {
      for (; !signal.aborted; await sleep(PACE_MS)) {
        if (this.#suspendNext) await this.#sleepAndWake(leadership);
        else await this.#command(leadership);
      }
    } catch (error) {
      // A lost role ends the work, whoever notices first; anything else is a fault of this program.
      if (!signal.aborted && !(error instanceof DispatchRefused)) throw error;
    }
  }

  resign(): void {
    void this.#leading?.resign();
  }

  /** Between two commands, acts like a machine that is suspended and wakes up later. */
  suspend(): void {
    this.#suspendNext = true;
  }

  async #command(leadership: Leadership): Promise<void> {
    const { command, url } = this.#nextCommand();
    await this.#write(leadership, command);
    void this.#parts.tell({ kind: "written", token: String(leadership.token) });
    await dispatch(url, command, leadership.token);
    void this.#parts.tell({ kind: "dispatched", device: command.device });
  }

  #nextCommand(): { readonly command: Command; readonly url: string } {
    const { devices } = this.#parts;
    this.#sequence += 1;
    const index = this.#sequence % devices.length;
    return {
      command: { device: `device-${index}`, sequence: this.#sequence, setpoint: Math.round(Math.random() * 100) },
      url: devices[index] as string,
    };
  }

  #write(leadership: Leadership, command: Command): Promise<unknown> {
    return leadership.write({ topic: this.#parts.topic, key: command.device, value: JSON.stringify(command) });
  }

  async #sleepAndWake(leadership: Leadership): Promise<void> {
    this.#suspendNext = false;
    const { clock, tell } = this.#parts;
    const { command, url } = this.#nextCommand();
    const token: FencingToken = leadership.token;
    // The message must be out before the process blocks.
    await tell({ kind: "suspending" });
    clock.suspend(SUSPEND_MS);
    // Nothing that came in meanwhile has been read yet: the process is exactly as sure of its role as before.
    const believesToLead = leadership.isLeader;
    const [write, dispatched] = await Promise.all([
      attempt(this.#write(leadership, command)),
      attempt(dispatch(url, command, token)),
    ]);
    await tell({ kind: "woke", believesToLead, write, dispatch: dispatched });
  }
}

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
