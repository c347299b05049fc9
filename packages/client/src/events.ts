import { channel } from "node:diagnostics_channel";
import type { FencingToken, MemberId, Role } from "@krabka/core";
import type { LossReason } from "./loss.js";

/** A logger like pino's. */
export interface Logger {
  debug(details: object, message: string): void;
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** Messages on the `node:diagnostics_channel` channels `krabka.*`. */
export interface KrabkaEvents {
  /** A member leads: its grant is confirmed. `takeoverMs` runs from the start of its challenge. */
  readonly "krabka.acquired": { role: Role; member: MemberId; token: FencingToken; takeoverMs: number };
  /** A leadership ended, once each. */
  readonly "krabka.lost": { role: Role; member: MemberId; token: FencingToken; reason: LossReason };
  /** A renewal was acknowledged. */
  readonly "krabka.renewed": { role: Role; member: MemberId; token: FencingToken; durationMs: number };
  /** A guarded write was settled. */
  readonly "krabka.write": {
    role: Role;
    member: MemberId;
    token: FencingToken;
    records: number;
    durationMs: number;
    outcome: string;
  };
  /** A record of the coordination topic did not decode and was skipped. */
  readonly "krabka.malformed": { role: Role; offset: bigint; error: Error };
}

const channels = {
  "krabka.acquired": channel("krabka.acquired"),
  "krabka.lost": channel("krabka.lost"),
  "krabka.renewed": channel("krabka.renewed"),
  "krabka.write": channel("krabka.write"),
  "krabka.malformed": channel("krabka.malformed"),
} as const;

/** Costs next to nothing while nobody listens. */
export function publish<Name extends keyof KrabkaEvents>(name: Name, message: KrabkaEvents[Name]): void {
  if (channels[name].hasSubscribers) channels[name].publish(message);
}
