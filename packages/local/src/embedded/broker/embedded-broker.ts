import { randomBytes } from "node:crypto";
import type { Clock, ProducerPair, TopicPartition } from "@krabka/core";
import { damaged, invalid, LocalError } from "../../errors.js";
import type { DurableLog } from "../../log/durable-log.js";
import { BrokerState, type Topic } from "./broker-state.js";
import type { PartitionLog } from "./partition-log.js";
import { type BrokerAnswer, type Origin, refuse } from "./request.js";
import { decodeCommand, decodeRequest, encodeCommand } from "./request-codec.js";

export interface BrokerOptions {
  readonly clock: Clock;
  /** Bytes of records that a partition keeps; the oldest go first. @default 64 MiB */
  readonly retentionBytes?: number | undefined;
  /** Records that a partition keeps. @default 1000000 */
  readonly retentionRecords?: number | undefined;
  /** Bytes of records that all partitions keep together; the largest gives first. @default 256 MiB */
  readonly retentionBytesInAll?: number | undefined;
  /** How long a removal stays in the coordination topic. @default 24 hours */
  readonly tombstoneMs?: number | undefined;
  /** A checkpoint is written when this much, and as much as the state takes, was logged since the last. @default 4 MiB */
  readonly checkpointAfterBytes?: number | undefined;
}

const MIB = 1024 * 1024;

const DEFAULTS = {
  retentionBytes: 64 * MIB,
  retentionRecords: 1_000_000,
  retentionBytesInAll: 256 * MIB,
  tombstoneMs: 24 * 3_600_000,
  checkpointAfterBytes: 4 * MIB,
} as const;

type Limits = Readonly<Record<keyof typeof DEFAULTS, number>>;

const limitsOf = (options: BrokerOptions): Limits => {
  const limits: Record<keyof typeof DEFAULTS, number> = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS) as (keyof typeof DEFAULTS)[]) {
    limits[name] = options[name] ?? DEFAULTS[name];
    if (!Number.isSafeInteger(limits[name]) || limits[name] < 1)
      throw invalid(name, "a whole number from 1 on", limits[name]);
  }
  return limits;
};

/** The first record of a broker's log names what it is, so that no other service's log passes for one. */
const FIRST_RECORD = "krabka embedded broker 1 ";

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
  /** Settles when everything that was decided so far is durable. */
  #durable: Promise<void> = Promise.resolve();
  #checkpointing = false;
  #failure: LocalError | undefined;

  private constructor(log: DurableLog, state: BrokerState, next: bigint, clock: Clock, limits: Limits) {
    this.#log = log;
    this.#state = state;
    this.#next = next;
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
    const { state, next } = await restore(log);
    if (state !== undefined) return new EmbeddedBroker(log, state, next, options.clock, limits);
    const history = randomBytes(16).toString("hex");
    await log.append(Buffer.from(FIRST_RECORD + history));
    return new EmbeddedBroker(log, new BrokerState(history), next + 1n, options.clock, limits);
  }

  get history(): string {
    return this.#state.history;
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
    const atMs = this.#clock.wallMs();
    const { answer, touched } = this.#state.apply({ atMs, origin, request: decodeRequest(request) });
    if (touched !== undefined) this.#append(encodeCommand(atMs, origin, request), touched, atMs);
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

  #append(command: Uint8Array, touched: readonly PartitionLog[], atMs: number): void {
    const position = this.#next;
    this.#next += 1n;
    const ends = touched.map((log) => [log, log.end] as const);
    this.#durable = this.#log.append(command).then(
      (stored) => {
        if (stored !== position) {
          throw this.#fail(new Error(`record ${position} was stored as ${stored}: the log has another writer`));
        }
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

const restore = async (
  log: DurableLog,
): Promise<{ readonly state: BrokerState | undefined; readonly next: bigint }> => {
  let state = restoreCheckpoint(log);
  let next = log.checkpoint?.position ?? 0n;
  for await (const record of log.read(next)) {
    try {
      if (state === undefined) state = new BrokerState(historyOf(record.bytes));
      else replay(state, record.bytes);
    } catch (error) {
      throw damaged(record.place, `record ${record.position} makes no sense: ${(error as Error).message}`, error);
    }
    next = record.position + 1n;
  }
  for (const partition of state?.partitions() ?? []) partition.publish(partition.end);
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

const historyOf = (bytes: Uint8Array): string => {
  const text = Buffer.from(bytes).toString("latin1");
  if (text.startsWith(FIRST_RECORD)) return text.slice(FIRST_RECORD.length);
  throw new Error("this is the log of something else than an embedded broker");
};

const replay = (state: BrokerState, bytes: Uint8Array): void => {
  const { answer, touched } = state.apply(decodeCommand(bytes));
  if (touched === undefined)
    throw new Error(`it was accepted once and is refused now: ${JSON.stringify(answer.status)}`);
};
