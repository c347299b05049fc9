import type { AbortSignalLike, Clock } from "@krabka/core";
import type { LogStatus } from "../../log/durable-log.js";
import type { HostOptions } from "../broker/broker-host.js";

/** What the owner and all others say alike. */
export interface EmbeddedTransportOptions {
  /** The coordination topic. @default "__coordination_state" */
  readonly topic?: string | undefined;
  /** Partitions of that topic; the count never changes once it exists. @default 16 */
  readonly partitions?: number | undefined;
  /** The caller's own topics with their partitions; created where they are missing. @default none */
  readonly topics?: Readonly<Record<string, number>> | undefined;
  /** Partitions of topics that are created when they are first written to. @default 0: an unknown topic is an error */
  readonly autoCreateTopics?: number | undefined;
  /** Limit of calls that name none. @default 5000 */
  readonly requestTimeoutMs?: number | undefined;
  /** @default the machine's clocks */
  readonly clock?: Clock | undefined;
}

export interface OpenOptions extends EmbeddedTransportOptions, HostOptions {
  /** Lets other processes of this user take part. @default not */
  readonly serve?: { readonly socketPath: string } | undefined;
}

export interface ConnectOptions extends EmbeddedTransportOptions {
  /** Where the owner serves. */
  readonly socketPath: string;
}

export interface OpenOrConnectOptions extends EmbeddedTransportOptions, HostOptions {
  /** @default "owner.sock" in the directory */
  readonly socketPath?: string | undefined;
  readonly signal?: AbortSignalLike | undefined;
}

export interface EmbeddedStatus {
  /** Whether this process owns the directory at present. */
  readonly isOwner: boolean;
  readonly isConnected: boolean;
  /** Of the owner's log. */
  readonly log: LogStatus | undefined;
  /** What was found at opening that an operator should know, as sentences. */
  readonly warnings: readonly string[];
}
