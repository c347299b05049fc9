import {
  type CallOptions,
  type Clock,
  type CoordinationRecord,
  KrabkaError,
  type Role,
  type RoleFeed,
  RoleState,
  type Transport,
} from "@krabka/core";
import { type Logger, publish } from "./events.js";
import { LeaseWatch } from "./lease-watch.js";

/**
 * One role as this process sees it: the folded state, kept current by one feed, and what is known of the holder's clock.
 */
export class RoleView {
  readonly role: Role;
  readonly watch: LeaseWatch;
  readonly #feed: RoleFeed;
  readonly #listeners = new Set<() => void>();
  readonly #logger: Logger;
  #state: RoleState;
  #live = false;
  #seenEnd = 0n;
  #failure: Error | undefined;

  constructor(transport: Transport, role: Role, clock: Clock, leaseMs: number, logger: Logger) {
    this.role = role;
    this.watch = new LeaseWatch(clock, leaseMs);
    this.#logger = logger;
    this.#state = RoleState.empty(role);
    this.#feed = transport.follow(role, {
      onRecords: (records) => this.#fold(records),
      onUncommitted: (records) => this.#signOfLife(records),
      onReset: () => {
        this.#state = RoleState.empty(role);
        this.#live = false;
        this.#seenEnd = 0n;
        // The replay follows by itself; this marks its end.
        this.sync({}).catch(() => undefined);
      },
      onMalformed: (offset, error) => {
        publish("krabka.malformed", { role, offset, error });
        logger.warn({ role, offset: String(offset), err: error }, "skipped a record that does not decode");
      },
      onError: (error) => this.#failed(error),
    });
  }

  get state(): RoleState {
    return this.#state;
  }

  /** False while the log is being replayed: the state may be old, or even empty. */
  get isCurrent(): boolean {
    return this.#live;
  }

  /** The error that ended the feed for good, if one did. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Resolves once the state is no older than the instant of this call. */
  async sync(options: CallOptions): Promise<void> {
    const end = await this.#feed.sync(options);
    if (end > this.#seenEnd) this.#seenEnd = end;
    if (this.#live) return;
    this.#live = true;
    this.#notify();
  }

  /** Whether the state includes what stands at `offset`. */
  hasSeen(offset: bigint): boolean {
    return this.#seenEnd > offset;
  }

  /** Calls `listener` after each change until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#listeners.clear();
    this.#feed.close();
  }

  #fold(records: readonly CoordinationRecord[]): void {
    for (const { offset } of records) if (offset >= this.#seenEnd) this.#seenEnd = offset + 1n;
    const folded = this.#state.fold(records);
    if (folded === this.#state) return;
    this.#state = folded;
    if (folded.lease !== undefined) this.watch.heard(folded.lease, this.#live);
    this.#notify();
  }

  #signOfLife(records: readonly CoordinationRecord[]): void {
    const holder = this.#state.lease?.member;
    for (const record of records) {
      if (record.role === this.role && record.kind === "lease" && record.member === holder)
        this.watch.signOfLife(record);
    }
    this.#notify();
  }

  #failed(error: Error): void {
    this.#logger.warn({ role: this.role, err: error }, "reading the role fails");
    if (!KrabkaError.is(error) || (error.code !== "UNAUTHORIZED" && error.code !== "UNKNOWN_TOPIC")) return;
    this.#failure = error;
    this.#notify();
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
