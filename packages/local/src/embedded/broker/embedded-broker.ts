import { randomBytes } from "node:crypto";
import type { Clock, ProducerPair, TopicPartition } from "@krabka/core";
import { LocalError } from "../../errors.js";
import type { DurableLog } from "../../log/durable-log.js";
import { type BrokerLimits, type BrokerOptions, brokerLimitsOf } from "./broker-options.js";
import { BrokerState } from "./broker-state.js";
import type { Sighting } from "./openings.js";
import type { PartitionLog } from "./partition-log.js";
import { type BrokerAnswer, type Origin, refuse } from "./request.js";
import { decodeRequest, encodeCommand, encodeRequest } from "./request-codec.js";
import { FIRST_RECORD, restore } from "./restore.js";
import type { Topic } from "./topics.js";

/** So many that no two openings ever share a name. */
const OPENING_NAME_BYTES = 8;

/**
 * Kafka's part in Krabka, on one durable log: it mints, it fences, it keeps topics.
 *
 * Requests are decided when they arrive, against all that was decided before, logged in that order, and answered once they are
 * durable. Readers see a record only then. So a crash takes back nothing that anybody saw.
 */
export class EmbeddedBroker {
  readonly #log: DurableLog;
  readonly #clock: Clock;
  readonly #limits: BrokerLimits;
  readonly #state: BrokerState;
  readonly #listeners = new Map<PartitionLog, Set<() => void>>();
  readonly #failureListeners = new Set<(error: LocalError) => void>();
  /** Position of the next record. */
  #next: bigint;
  /** Position after the newest durable record. */
  #durableEnd: bigint;
  /** Settles when everything that was decided so far is durable. */
  #durable: Promise<void> = Promise.resolve();
  #checkpointing = false;
  #failure: LocalError | undefined;

  private constructor(log: DurableLog, state: BrokerState, next: bigint, clock: Clock, limits: BrokerLimits) {
    this.#log = log;
    this.#state = state;
    this.#next = next;
    this.#durableEnd = next;
    this.#clock = clock;
    this.#limits = limits;
  }

  /**
   * Rebuilds the state from the checkpoint and the records since then. The log is this broker's alone from now on.
   *
   * @throws {LocalError} `DAMAGED` where a stored state or command makes no sense; `INVALID_ARGUMENT`, `FAILED`
   */
  static async open(log: DurableLog, options: BrokerOptions): Promise<EmbeddedBroker> {
    const limits = brokerLimitsOf(options);
    const restored = await restore(log);
    if (restored === undefined) await log.append(Buffer.from(FIRST_RECORD));
    const { state, next } = restored ?? { state: new BrokerState(), next: 1n };
    const broker = new EmbeddedBroker(log, state, next, options.clock, limits);
    const name = randomBytes(OPENING_NAME_BYTES).toString("hex");
    const raiseBy = options.raiseCountersBy ?? 0n;
    await broker.submit(encodeRequest({ kind: "open", name, position: next, raiseBy }), undefined);
    return broker;
  }

  /** What somebody who is connected now has seen at most. */
  get sighting(): Sighting {
    return { opening: this.#state.openings.current, position: this.#durableEnd };
  }

  /** @throws {LocalError} `OTHER_HISTORY` for somebody who was connected to a log that this one does not continue */
  requireContinues(seen: Sighting | undefined): void {
    const why = seen && this.#state.openings.contradiction(seen, this.#durableEnd);
    if (why === undefined) return;
    throw new LocalError(
      "OTHER_HISTORY",
      `This log does not continue the one that this process knows: ${why}. A backup may have been put back, or the directory replaced. Offsets and pairs from before mean nothing here; start anew with a new transport`,
    );
  }

  /** The largest request that the log takes. */
  get maxRequestBytes(): number {
    return this.#log.maxRecordBytes - COMMAND_OVERHEAD_BYTES;
  }

  get failure(): LocalError | undefined {
    return this.#failure;
  }

  isKnown(client: string): boolean {
    return this.#state.isKnown(client);
  }

  /**
   * Decides a request and resolves with its answer once all that the answer rests on is durable.
   *
   * @throws {LocalError} `FAILED`: it may or may not have taken effect
   */
  async submit(request: Uint8Array, origin: Origin | undefined): Promise<BrokerAnswer> {
    if (this.#failure !== undefined) throw this.#failure;
    if (request.length > this.maxRequestBytes) {
      return refuse("invalid", `A request takes at most ${this.maxRequestBytes} bytes; got ${request.length}`);
    }
    const answer = this.#decide(request, origin);
    const { maxRoles } = this.#limits;
    const { size } = this.#state.roles;
    // Many at once, since it looks at everything.
    if (size > maxRoles) this.#decide(encodeRequest({ kind: "forget-roles", count: Math.ceil(size / 16) }), undefined);
    await this.#durable;
    return answer;
  }

  /** The role's current pair. */
  async describe(role: string): Promise<ProducerPair | undefined> {
    return this.#whenDurable(this.#state.roles.current(role));
  }

  async topic(name: string): Promise<Topic | undefined> {
    return this.#whenDurable(this.#state.topics.get(name));
  }

  /** For readers; they see it up to `visibleEnd`. */
  partition(target: TopicPartition): PartitionLog | undefined {
    return this.#state.topics.partition(target);
  }

  /** Calls `listener` whenever readers see more of the partition. @returns stops it */
  onAdvance(log: PartitionLog, listener: () => void): () => void {
    const listeners = this.#listeners.get(log) ?? new Set();
    this.#listeners.set(log, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(log) === listeners) this.#listeners.delete(log);
    };
  }

  /** Calls `listener` once, when this broker is at its end: storage failed, or it was closed. */
  onEnd(listener: (error: LocalError) => void): () => void {
    this.#failureListeners.add(listener);
    return () => this.#failureListeners.delete(listener);
  }

  /** Resolves when everything that was decided is durable, or never will be. The log stays open. */
  async close(): Promise<void> {
    if (this.#failure === undefined) this.#end(new LocalError("CLOSED", "The broker is closed"));
    await this.#durable.catch(() => undefined);
    this.#listeners.clear();
    this.#failureListeners.clear();
  }

  #decide(request: Uint8Array, origin: Origin | undefined): BrokerAnswer {
    const atMs = this.#clock.wallMs();
    const { answer, touched } = this.#state.apply({ atMs, origin, request: decodeRequest(request) });
    if (touched !== undefined) this.#append(encodeCommand(atMs, origin, request), touched, atMs);
    return answer;
  }

  #append(command: Uint8Array, touched: readonly PartitionLog[], atMs: number): void {
    const position = this.#next;
    this.#next += 1n;
    const ends = touched.map((log) => [log, log.end] as const);
    this.#durable = this.#log.append(command).then(
      (stored) => {
        if (stored !== position) {
          throw this.#fail(new Error(`record ${position} was stored as ${stored}: the log has another writer`));
        }
        this.#durableEnd = position + 1n;
        for (const [log, end] of ends) this.#publish(log, end, atMs);
        this.#checkpointIfDue();
      },
      (error: unknown) => {
        throw this.#fail(error);
      },
    );
    // Whoever waits is told; a record that nobody waits for must not end the process.
    this.#durable.catch(() => undefined);
  }

  #publish(log: PartitionLog, end: bigint, atMs: number): void {
    log.publish(end);
    const { retentionBytes, retentionRecords, retentionBytesInAll, tombstoneMs } = this.#limits;
    const retention = {
      bytesPerPartition: retentionBytes,
      recordsPerPartition: retentionRecords,
      bytesInAll: retentionBytesInAll,
      tombstoneMs,
    };
    this.#state.topics.clean(log, retention, atMs);
    for (const listener of [...(this.#listeners.get(log) ?? [])]) listener();
  }

  async #whenDurable<T>(seen: T): Promise<T> {
    if (this.#failure !== undefined) throw this.#failure;
    await this.#durable;
    return seen;
  }

  #checkpointIfDue(): void {
    if (this.#checkpointing || this.#failure !== undefined) return;
    // As much as the state takes: so checkpoints at most double what is written, however large the state is.
    const { tailBytes } = this.#log.status();
    if (tailBytes < this.#limits.checkpointAfterBytes || tailBytes < this.#state.topics.bytes) return;
    this.#checkpointing = true;
    this.#checkpoint().then(
      () => {
        this.#checkpointing = false;
      },
      (error: unknown) => this.#fail(error),
    );
  }

  async #checkpoint(): Promise<void> {
    // The state is ahead of the disk by what is pending: it is that of `position` once all of it is durable.
    const position = this.#next;
    const durable = this.#durable;
    const bytes = await this.#state.snapshot().encode();
    await durable;
    if (this.#failure === undefined) await this.#log.writeCheckpoint(position, bytes);
  }

  #fail(cause: unknown): LocalError {
    if (this.#failure !== undefined) return this.#failure;
    const message = cause instanceof Error ? cause.message : String(cause);
    const failure = new LocalError("FAILED", `The broker refuses everything until it is opened again: ${message}`, {
      cause,
    });
    this.#end(failure);
    return failure;
  }

  #end(failure: LocalError): void {
    this.#failure = failure;
    for (const listener of [...this.#failureListeners]) listener(failure);
  }
}

/** What a command adds to its request: version, instant, origin and lengths. */
const COMMAND_OVERHEAD_BYTES = 128;
