import {
  type CallOptions,
  type CoordinationRecord,
  decodeEntry,
  type FeedListener,
  KrabkaError,
  type Role,
  type RoleFeed,
  roleOfKey,
} from "@krabka/core";
import {
  ConnectionLostError,
  type Isolation,
  KafkaCode,
  type PartitionRef,
  type StoredBatch,
  type StoredRecord,
} from "../cluster/protocol.js";
import { type Deferred, deferred } from "../deferred.js";
import { type FakeConnection, refusalError, retryDelayMs } from "./fake-connection.js";

interface Waiter {
  readonly end: bigint;
  readonly done: Deferred<void>;
}

type Decoded = { readonly record: CoordinationRecord } | { readonly offset: bigint; readonly error: Error };

/** Reads one role's partition with long-poll fetches and sorts what it reads into committed and undecided. */
export class FakeFeed implements RoleFeed {
  readonly #connection: FakeConnection;
  readonly #role: Role;
  readonly #target: PartitionRef;
  readonly #listener: FeedListener;
  readonly #isolation: Isolation;
  readonly #stopped = new AbortController();
  /** Of transactions that are still open, by producer id. */
  readonly #undecided = new Map<bigint, Decoded[]>();
  #waiters: Waiter[] = [];
  #position: bigint | undefined;
  #reportedUpTo = -1n;
  #ended: KrabkaError | undefined;

  constructor(
    connection: FakeConnection,
    role: Role,
    target: PartitionRef,
    listener: FeedListener,
    isolation: Isolation,
  ) {
    this.#connection = connection;
    this.#role = role;
    this.#target = target;
    this.#listener = listener;
    this.#isolation = isolation;
    connection.onEnd((error) => this.#end(error));
    if (connection.error !== undefined) this.#end(connection.error);
    void this.#run();
  }

  async sync(options?: CallOptions): Promise<bigint> {
    return await this.#connection.within(options, async (limit) => {
      if (this.#ended !== undefined) throw this.#ended;
      const ask = { ...this.#target, at: "latest", isolation: "read_uncommitted" } as const;
      const { answer } = await this.#connection.repeat(
        limit,
        "ListOffsets",
        ask,
        this.#connection.toLeader(this.#target),
      );
      if (!answer.ok) throw refusalError(`Topic ${JSON.stringify(this.#target.topic)}`, answer.code);
      const waiter: Waiter = { end: answer.offset, done: deferred<void>() };
      waiter.done.promise.catch(() => {});
      if (this.#ended !== undefined) throw this.#ended;
      if (this.#position === undefined || this.#position < waiter.end) {
        this.#waiters.push(waiter);
        try {
          await limit.race(waiter.done.promise);
        } finally {
          this.#waiters = this.#waiters.filter((one) => one !== waiter);
        }
      }
      return waiter.end;
    });
  }

  close(): void {
    this.#end(new KrabkaError("CLOSED", "The feed was closed"));
  }

  #end(error: KrabkaError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    for (const waiter of this.#waiters) waiter.done.reject(error);
    this.#waiters = [];
    this.#stopped.abort();
  }

  async #run(): Promise<void> {
    for (let failures = 0; this.#ended === undefined; ) {
      try {
        await this.#readOn();
        failures = 0;
      } catch (error) {
        if (this.#ended !== undefined) return;
        const known =
          error instanceof KrabkaError
            ? error
            : new KrabkaError("UNREACHABLE", "Reading the role failed; it is being retried", { cause: error });
        const forGood = known.code === "UNKNOWN_TOPIC" || known.code === "UNAUTHORIZED";
        if (forGood) this.#end(known);
        this.#listener.onError(known);
        if (forGood) return;
        failures += 1;
        await new Promise<void>((resolve) =>
          this.#connection.clock.setTimer(failures * retryDelayMs(failures), resolve),
        );
      }
    }
  }

  /** One round: finds the start if there is none yet, then one fetch. */
  async #readOn(): Promise<void> {
    const limit = this.#connection.limit({ signal: this.#stopped.signal, timeoutMs: 2 ** 31 - 1 });
    const route = this.#connection.toLeader(this.#target);
    try {
      if (this.#position === undefined) {
        const ask = { ...this.#target, at: "earliest", isolation: "read_uncommitted" } as const;
        const { answer } = await this.#connection.repeat(limit, "ListOffsets", ask, route);
        if (!answer.ok) throw refusalError(`Topic ${JSON.stringify(this.#target.topic)}`, answer.code);
        this.#advance(answer.offset);
      }
      const ask = {
        ...this.#target,
        offset: this.#position as bigint,
        isolation: this.#isolation,
        maxWaitMs: Number.POSITIVE_INFINITY,
      };
      const broker = await route.broker(limit);
      const answer = await this.#connection.once(limit, "Fetch", ask, broker, this.#stopped.signal);
      if (this.#ended !== undefined) return;
      if (answer.ok) this.#take(answer.batches);
      else if (answer.code === KafkaCode.OFFSET_OUT_OF_RANGE) this.#startOver();
      else {
        route.forget();
        throw refusalError(`Topic ${JSON.stringify(this.#target.topic)}`, answer.code);
      }
    } catch (error) {
      if (error instanceof ConnectionLostError) route.forget();
      throw error;
    } finally {
      limit.dispose();
    }
  }

  #startOver(): void {
    this.#position = undefined;
    this.#undecided.clear();
    this.#listener.onReset();
  }

  #take(batches: readonly StoredBatch[]): void {
    for (const batch of batches) {
      if (this.#ended !== undefined) return;
      if (batch.control !== undefined) {
        const decided = this.#undecided.get(batch.producerId) ?? [];
        this.#undecided.delete(batch.producerId);
        if (batch.control === "commit") this.#deliver(decided);
      } else {
        const from = this.#position ?? 0n;
        const decoded = batch.records.flatMap((record) =>
          record.offset < from ? [] : this.#decode(record, batch.appendedAtMs),
        );
        if (!batch.transactional) this.#deliver(decoded);
        else if (decoded.length > 0) this.#remember(batch.producerId, decoded);
      }
      this.#advance(batch.lastOffset + 1n);
    }
  }

  #remember(producerId: bigint, decoded: readonly Decoded[]): void {
    this.#undecided.set(producerId, [...(this.#undecided.get(producerId) ?? []), ...decoded]);
    if (this.#isolation === "read_committed") return;
    const records = decoded.flatMap((one) => ("record" in one ? [one.record] : []));
    if (records.length > 0) this.#listener.onUncommitted(records);
  }

  #deliver(decoded: readonly Decoded[]): void {
    const records: CoordinationRecord[] = [];
    for (const one of decoded) {
      if ("record" in one) records.push(one.record);
      else if (one.offset > this.#reportedUpTo) {
        this.#reportedUpTo = one.offset;
        this.#listener.onMalformed(one.offset, one.error);
      }
    }
    if (records.length > 0) this.#listener.onRecords(records);
  }

  #decode(record: StoredRecord, appendedAtMs: number | undefined): readonly Decoded[] {
    const named = roleOfKey(record.key);
    if (named !== undefined && named !== this.#role) return [];
    try {
      return [{ record: { ...decodeEntry(record), offset: record.offset, appendedAtMs } }];
    } catch (error) {
      return [{ offset: record.offset, error: error as Error }];
    }
  }

  #advance(position: bigint): void {
    this.#position = position;
    const reached = this.#waiters.filter((waiter) => waiter.end <= position);
    for (const waiter of reached) waiter.done.resolve();
  }
}
