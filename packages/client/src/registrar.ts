import {
  type Attributes,
  type Clock,
  type CoordinationEntry,
  DuplicateMemberError,
  encodeEntry,
  KrabkaError,
  MAX_TIMER_MS,
  type MemberId,
  partitionForRole,
  type RecordPosition,
  type Role,
  type RosterEntry,
  type TopicPartition,
  type Transport,
} from "@krabka/core";
import { Backoff } from "./backoff.js";
import { Limit, pause } from "./limits.js";

/** How long a member tries to take its registration back when it gives up. */
const WITHDRAW_MS = 5_000;

/** Into how many attempts that time is divided where no answer comes. */
const ATTEMPTS = 3;

/** How much longer than its caller a registration waits for its answer: as long as its removal waits for it. */
const ANSWER_MS = Math.ceil(WITHDRAW_MS / ATTEMPTS);

const PASSING = new Set(["UNREACHABLE", "TIMEOUT"]);

/** A member's own registration: written anew for each candidacy, taken back when it gives up. */
export class Registrar {
  readonly role: Role;
  readonly member: MemberId;
  readonly attributes: Attributes;
  readonly target: TopicPartition;
  readonly #transport: Transport;
  readonly #clock: Clock;
  /** What tells this process's registrations from those of another one with the same member id. */
  readonly #sentAtMs = new Set<bigint>();
  /** Settles when the newest registration was answered, or never will be. */
  #sent: Promise<void> = Promise.resolve();
  #joinOffset = -1n;
  #registeredAtMonotonicMs = 0;

  constructor(
    transport: Transport,
    clock: Clock,
    topic: { readonly name: string; readonly partitions: number },
    who: { readonly role: Role; readonly member: MemberId; readonly attributes: Attributes },
  ) {
    this.#transport = transport;
    this.#clock = clock;
    this.role = who.role;
    this.member = who.member;
    this.attributes = who.attributes;
    this.target = { topic: topic.name, partition: partitionForRole(who.role, topic.partitions) };
  }

  /** Offset of the newest acknowledged registration; -1 before the first. */
  get joinOffset(): bigint {
    return this.#joinOffset;
  }

  /** Monotonic instant of that registration. */
  get registeredAtMonotonicMs(): number {
    return this.#registeredAtMonotonicMs;
  }

  /** Whether another process registered after this one under the same member id. */
  isContested(entry: RosterEntry | undefined): boolean {
    return entry !== undefined && entry.joinOffset > this.#joinOffset && !this.#sentAtMs.has(entry.registeredAtMs);
  }

  /** The error for that. */
  duplicate(): DuplicateMemberError {
    const { role, member } = this;
    return new DuplicateMemberError(
      `Another process registered for role ${role} under the same member id ${member}; every process needs its own id`,
      { role, member },
    );
  }

  /** A registration of this member as of now. */
  entry(): CoordinationEntry {
    const registeredAtMs = BigInt(Math.floor(this.#clock.wallMs()));
    this.#sentAtMs.add(registeredAtMs);
    return { kind: "registration", role: this.role, member: this.member, registeredAtMs, attributes: this.attributes };
  }

  /** Appends a registration; its offset is the member's place in the order of succession. */
  async register(limit: Limit): Promise<RecordPosition> {
    const { restMs } = limit;
    const timeoutMs = restMs === undefined ? undefined : Math.min(MAX_TIMER_MS, restMs + ANSWER_MS);
    const sent = this.#append(this.entry(), { timeoutMs });
    this.#sent = sent.then(
      () => undefined,
      () => undefined,
    );
    const position = await limit.race(sent);
    this.joined(position);
    return position;
  }

  /** The registration now stands at `position`. */
  joined(position: RecordPosition): void {
    this.#joinOffset = position.offset;
    this.#registeredAtMonotonicMs = this.#clock.monotonicMs();
  }

  /**
   * Takes the registration back, in several attempts. Also when it is not known to have been written: its answer may have
   * been lost.
   */
  async withdraw(timeoutMs = WITHDRAW_MS): Promise<void> {
    const limit = new Limit(this.#clock, "withdraw", { timeoutMs });
    const backoff = new Backoff();
    const attempt = { signal: limit.signal, timeoutMs: Math.ceil(timeoutMs / ATTEMPTS) };
    try {
      await this.#arrived(attempt.timeoutMs);
      for (;;) {
        try {
          await this.#append({ kind: "registration-removed", role: this.role, member: this.member }, attempt);
          return;
        } catch (error) {
          if (limit.signal.aborted || !KrabkaError.is(error) || !PASSING.has(error.code)) throw error;
          await pause(this.#clock, backoff.next(), limit.signal);
        }
      }
    } finally {
      limit.dispose();
    }
  }

  /** A registration that is still under way could otherwise come to stand after its own removal. */
  async #arrived(timeoutMs: number): Promise<void> {
    const patience = new Limit(this.#clock, "register", { timeoutMs });
    await patience.race(this.#sent).catch(() => undefined);
    patience.dispose();
  }

  async #append(
    entry: CoordinationEntry,
    options: { signal?: AbortSignal; timeoutMs?: number | undefined },
  ): Promise<RecordPosition> {
    const positions = await this.#transport.appendUnfenced(this.target, [encodeEntry(entry)], options);
    return positions[0] as RecordPosition;
  }
}
