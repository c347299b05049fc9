import { randomBytes } from "node:crypto";
import type { Clock, ProducerPair, TopicPartition } from "@krabka/core";
import { damaged, invalid, LocalError } from "../../errors.js";
import type { DurableLog } from "../../log/durable-log.js";
import { BrokerState, type Topic } from "./broker-state.js";
import type { Sighting } from "./openings.js";
import type { PartitionLog } from "./partition-log.js";
import { type BrokerAnswer, type Origin, refuse } from "./request.js";
import { decodeCommand, decodeRequest, encodeCommand, encodeRequest } from "./request-codec.js";

export interface BrokerOptions {
  readonly clock: Clock;
  /** Memory for the records that a partition keeps, with 320 bytes for each write; the oldest go first. @default 64 MiB */
  readonly retentionBytes?: number | undefined;
  /** Records that a partition keeps. @default 1000000 */
  readonly retentionRecords?: number | undefined;
  /** Memory for the records of all partitions together; the largest gives first. @default 256 MiB */
  readonly retentionBytesInAll?: number | undefined;
  /**
   * Roles whose pairs are remembered. Beyond that those that were silent for longest are forgotten: their pairs are dead, and
   * they go on under a new producer id. More than this at the same time push each other out. @default 10000
   */
  readonly maxRoles?: number | undefined;
  /** How long a removal stays in the coordination topic. @default 24 hours */
  readonly tombstoneMs?: number | undefined;
  /**
   * Raises all offsets, so also terms, and all producer ids by this much once. For an opening after a backup was put back: more
   * than was handed out since the backup, so that resources which saw those tokens accept the next ones. @default 0
   */
  readonly raiseCountersBy?: bigint | undefined;
  /** A checkpoint is written when this much, and as much as the state takes, was logged since the last. @default 4 MiB */
  readonly checkpointAfterBytes?: number | undefined;
}

const MIB = 1024 * 1024;

const DEFAULTS = {
  retentionBytes: 64 * MIB,
  retentionRecords: 1_000_000,
  retentionBytesInAll: 256 * MIB,
  maxRoles: 10_000,
  tombstoneMs: 24 * 3_600_000,
  checkpointAfterBytes: 4 * MIB,
} as const;

type Limits = Readonly<Record<keyof typeof DEFAULTS, number>>;

/** Leaves room for so many raises that nobody comes to their end. */
const MAX_RAISE = 2n ** 48n;

const limitsOf = (options: BrokerOptions): Limits => {
  const { raiseCountersBy: raiseBy = 0n } = options;
  if (typeof raiseBy !== "bigint" || raiseBy < 0n || raiseBy > MAX_RAISE) {
    throw invalid("raiseCountersBy", "a bigint in 0..2^48", raiseBy);
  }
  const limits: Record<keyof typeof DEFAULTS, number> = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS) as (keyof typeof DEFAULTS)[]) {
    limits[name] = options[name] ?? DEFAULTS[name];
    if (!Number.isSafeInteger(limits[name]) || limits[name] < 1)
      throw invalid(name, "a whole number from 1 on", limits[name]);
  }
  return limits;
};

/** The first record of a broker's log names what it is, so that no other service's log passes for one. */
const FIRST_RECORD = "krabka embedded broker 2";
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
  readonly #limits: Limits;
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

  private constructor(log: DurableLog, state: BrokerState, next: bigint, clock: Clock, limits: Limits) {
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
    const limits = limitsOf(options);
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
    return this.#whenDurable(this.#state.topic(name));
  }

  /** For readers; they see it up to `visibleEnd`. */
  partition(target: TopicPartition): PartitionLog | undefined {
    return this.#state.partition(target);
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
    this.#state.clean(log, retention, atMs);
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
    if (tailBytes < this.#limits.checkpointAfterBytes || tailBytes < this.#state.bytes) return;
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
    const bytes = this.#state.encode();
    await this.#durable;
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

/** Undefined for a log without records. */
const restore = async (
  log: DurableLog,
): Promise<{ readonly state: BrokerState; readonly next: bigint } | undefined> => {
  let state = restoreCheckpoint(log);
  let next = log.checkpoint?.position ?? 0n;
  for await (const record of log.read(next)) {
    try {
      if (state === undefined) state = begin(record.bytes);
      else replay(state, record.bytes);
    } catch (error) {
      throw damaged(record.place, `record ${record.position} makes no sense: ${(error as Error).message}`, error);
    }
    next = record.position + 1n;
  }
  if (state === undefined) return undefined;
  for (const partition of state.partitions()) partition.publish(partition.end);
  return { state, next };
};

const restoreCheckpoint = ({ checkpoint }: DurableLog): BrokerState | undefined => {
  if (checkpoint === undefined) return undefined;
  try {
    return BrokerState.decode(checkpoint.state);
  } catch (error) {
    throw damaged(checkpoint.place, `the state makes no sense: ${(error as Error).message}`, error);
  }
};

const begin = (bytes: Uint8Array): BrokerState => {
  if (Buffer.from(bytes).toString("latin1") === FIRST_RECORD) return new BrokerState();
  throw new Error("this is the log of something else than an embedded broker, or of another version");
};

const replay = (state: BrokerState, bytes: Uint8Array): void => {
  const { answer, touched } = state.apply(decodeCommand(bytes));
  if (touched === undefined)
    throw new Error(`it was accepted once and is refused now: ${JSON.stringify(answer.status)}`);
};
