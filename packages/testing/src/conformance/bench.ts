import {
  type CallOptions,
  type CoordinationRecord,
  type CoordinationTopic,
  decodeUtf8,
  encodeEntry,
  encodeUtf8,
  type FeedListener,
  KrabkaError,
  MemberId,
  NO_ATTRIBUTES,
  type OutgoingRecord,
  partitionForRole,
  type RawRecord,
  type RecordPosition,
  Role,
  type RoleFeed,
  type TopicPartition,
  type Transport,
  type WriteOutcome,
  type WriterSession,
} from "@krabka/core";
import type { TransportHarness, TransportSubject } from "./harness.js";

/** What a feed told its listener, in order. */
export interface FeedLog {
  readonly feed: RoleFeed;
  readonly records: CoordinationRecord[];
  readonly uncommitted: CoordinationRecord[];
  readonly malformed: bigint[];
  readonly errors: Error[];
  resets: number;
}

export const DEFAULT_TRANSACTION_TIMEOUT_MS = 30_000;

const runId = Math.random().toString(36).slice(2, 8);
let names = 0;

/** A name that no other test of any run uses. */
export const freshName = (what: string): string => {
  names += 1;
  return `${what}-${runId}-${names}`;
};

/** The place of one test: a coordination topic of its own, transports that end with it, and ways to look at the truth. */
export class Bench {
  readonly harness: TransportHarness;
  readonly subject: TransportSubject;
  readonly coordination: CoordinationTopic = { name: freshName("coordination"), partitions: 1 };
  readonly member = MemberId.of("node-1");
  readonly #transports: Transport[] = [];

  constructor(subject: TransportSubject, harness: TransportHarness) {
    this.subject = subject;
    this.harness = harness;
  }

  /** The fenced append is what the transport offers for lease records; else they go in transactions. */
  get appendsLeases(): boolean {
    return this.subject.unsupported.fencedAppend === undefined;
  }

  role(): Role {
    return Role.of(freshName("role"));
  }

  /** Where the records of a role are. */
  home(role: Role): TopicPartition {
    return { topic: this.coordination.name, partition: partitionForRole(role, this.coordination.partitions) };
  }

  /** A prepared transport that no fault reaches. */
  async transport(): Promise<Transport> {
    return await this.#prepared(false);
  }

  /** A prepared transport that the harness's faults reach. */
  async faultyTransport(): Promise<Transport> {
    return await this.#prepared(true);
  }

  /** A transport that was not prepared yet. */
  unpreparedTransport(topic: CoordinationTopic = this.coordination): Transport {
    const transport = this.harness.transport({ topic, faulty: false });
    this.#transports.push(transport);
    return transport;
  }

  async topic(partitions = 1): Promise<string> {
    const name = freshName("commands");
    await this.harness.createTopic(name, partitions);
    return name;
  }

  /** A session on a transport of its own. */
  async session(role: Role = this.role()): Promise<WriterSession> {
    return await this.mint(await this.transport(), role);
  }

  /** Mints, and asks again while the coordinator ends the transaction before. */
  async mint(transport: Transport, role: Role, options: CallOptions = {}): Promise<WriterSession> {
    return await this.eventually("the coordinator to mint", async () => {
      try {
        const session = { transactionTimeoutMs: DEFAULT_TRANSACTION_TIMEOUT_MS, mayMint: () => true };
        return await transport.openSession(role, { ...session, ...options });
      } catch (error) {
        if (KrabkaError.is(error) && error.code === "BUSY") return undefined;
        throw error;
      }
    });
  }

  /** Writes one lease record under the session's pair, in the way that the transport offers. */
  async writeLease(session: WriterSession, options?: CallOptions): Promise<WriteOutcome> {
    const record = this.lease(session);
    return this.appendsLeases
      ? await session.append(this.home(session.role), [record], options)
      : await session.commit([{ ...record, ...this.home(session.role) }], options);
  }

  lease(session: Pick<WriterSession, "role" | "pair">): RawRecord {
    const nowMs = BigInt(this.harness.clock.wallMs());
    return encodeEntry({
      kind: "lease",
      role: session.role,
      member: this.member,
      pair: session.pair,
      term: undefined,
      grantedAtMs: nowMs,
      deadlineMs: nowMs + 30_000n,
      attributes: NO_ATTRIBUTES,
    });
  }

  registration(role: Role, member: string): RawRecord {
    return encodeEntry({
      kind: "registration",
      role,
      member: MemberId.of(member),
      registeredAtMs: BigInt(this.harness.clock.wallMs()),
      attributes: NO_ATTRIBUTES,
    });
  }

  follow(transport: Transport, role: Role): FeedLog {
    const log: Omit<FeedLog, "feed"> = { records: [], uncommitted: [], malformed: [], errors: [], resets: 0 };
    const listener: FeedListener = {
      onRecords: (records) => log.records.push(...records),
      onUncommitted: (records) => log.uncommitted.push(...records),
      onReset: () => {
        log.resets += 1;
        log.records.length = 0;
      },
      onMalformed: (offset) => log.malformed.push(offset),
      onError: (error) => log.errors.push(error),
    };
    return Object.assign(log, { feed: transport.follow(role, listener) });
  }

  /** Values that a committed reader sees in a partition, in order. */
  async values(topic: string, partition = 0): Promise<readonly string[]> {
    const records = await this.harness.readCommitted({ topic, partition });
    return records.map(({ value }) => (value === null ? "" : decodeUtf8(value)));
  }

  /**
   * What the partition of a topic holds once everything before now is decided: a record is appended last, and whoever sees
   * it among the committed sees all that was committed before.
   */
  async decidedValues(topic: string, partition = 0): Promise<readonly string[]> {
    const last = freshName("last");
    await this.harness.appendRaw({ topic, partition }, [{ key: null, value: encodeUtf8(last), headers: [] }]);
    return await this.eventually("all transactions before now to be decided", async () => {
      const values = await this.values(topic, partition);
      return values.includes(last) ? values.filter((value) => !value.startsWith("last-")) : undefined;
    });
  }

  /** Waits until `look` gives something. @throws {Error} naming `what` when the harness's patience ends */
  async eventually<T>(what: string, look: () => T | undefined | Promise<T | undefined>): Promise<T> {
    const { clock, patienceMs } = this.harness;
    const untilMs = clock.monotonicMs() + patienceMs;
    for (;;) {
      const found = await look();
      if (found !== undefined) return found;
      if (clock.monotonicMs() > untilMs) throw new Error(`Waited ${patienceMs} ms in vain for ${what}`);
      await this.sleep(5);
    }
  }

  async sleep(ms: number): Promise<void> {
    await new Promise<void>((resolve) => this.harness.clock.setTimer(ms, resolve));
  }

  /** How long `work` took by the harness's clock, with its result. */
  async timed<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly tookMs: number }> {
    const startMs = this.harness.clock.monotonicMs();
    const result = await work();
    return { result, tookMs: this.harness.clock.monotonicMs() - startMs };
  }

  async close(): Promise<void> {
    await Promise.all(this.#transports.map((transport) => transport.close()));
  }

  async #prepared(faulty: boolean): Promise<Transport> {
    const transport = this.harness.transport({ topic: this.coordination, faulty });
    this.#transports.push(transport);
    await transport.prepare();
    return transport;
  }
}

/** A record of the caller's own. */
export const command = (topic: string, value: string, partition?: number): OutgoingRecord => ({
  topic,
  partition,
  key: encodeUtf8("device"),
  value: encodeUtf8(value),
  headers: [],
});

/** @throws {Error} unless the write was committed */
export const positionsOf = (outcome: WriteOutcome): readonly RecordPosition[] => {
  if (outcome.status === "committed") return outcome.positions;
  throw new Error(`Expected a committed write; it is ${outcome.status}`, { cause: outcome.cause });
};

/** The code of the KrabkaError with which `promise` rejects. @throws {Error} when it does not */
export const rejection = async (promise: Promise<unknown>): Promise<string> => {
  try {
    await promise;
  } catch (error) {
    if (KrabkaError.is(error)) return error.code;
    throw error;
  }
  throw new Error("Expected a rejection; the call resolved");
};
