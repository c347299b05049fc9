import type {
  CallOptions,
  Clock,
  DescribeOptions,
  FeedListener,
  Prepared,
  RawRecord,
  RecordPosition,
  Role,
  RoleDescription,
  RoleFeed,
  SessionOptions,
  TopicPartition,
  Transport,
  TransportCapabilities,
  WriteOutcome,
  WriterSession,
} from "@krabka/core";

const COORDINATION_TOPIC = "__coordination_state";

/** What a member did at its transport, by its own monotonic clock. */
export interface Recorder {
  /** The state of a role was read: the answer came now, the question was asked at `askedAtMs`. */
  synced(role: Role, askedAtMs: number): void;
  /** An unconditional InitProducerId is about to go out; it does right now if `may`. */
  mints(role: Role, may: boolean): void;
  /** A lease record was acknowledged; its request started at `sinceMs`. */
  leaseWritten(role: Role, sinceMs: number): void;
}

/** Passes everything on and tells what it was. */
export class RecordingTransport implements Transport {
  readonly name: string;
  readonly #inner: Transport;
  readonly #clock: Clock;
  readonly #recorder: Recorder;

  constructor(inner: Transport, clock: Clock, recorder: Recorder) {
    this.name = inner.name;
    this.#inner = inner;
    this.#clock = clock;
    this.#recorder = recorder;
  }

  get capabilities(): TransportCapabilities {
    return this.#inner.capabilities;
  }

  prepare(options?: CallOptions): Promise<Prepared> {
    return this.#inner.prepare(options);
  }

  follow(role: Role, listener: FeedListener): RoleFeed {
    const feed = this.#inner.follow(role, listener);
    return {
      sync: async (options) => {
        const askedAtMs = this.#clock.monotonicMs();
        const end = await feed.sync(options);
        this.#recorder.synced(role, askedAtMs);
        return end;
      },
      close: () => feed.close(),
    };
  }

  appendUnfenced(
    target: TopicPartition,
    records: readonly RawRecord[],
    options?: CallOptions,
  ): Promise<readonly RecordPosition[]> {
    return this.#inner.appendUnfenced(target, records, options);
  }

  async openSession(role: Role, options: SessionOptions): Promise<WriterSession> {
    const mayMint = () => {
      const may = options.mayMint();
      this.#recorder.mints(role, may);
      return may;
    };
    return this.#recorded(await this.#inner.openSession(role, { ...options, mayMint }));
  }

  describe(role: Role, options?: DescribeOptions): Promise<RoleDescription> {
    return this.#inner.describe(role, options);
  }

  partitionsOf(topic: string, options?: CallOptions): Promise<number> {
    return this.#inner.partitionsOf(topic, options);
  }

  close(): Promise<void> {
    return this.#inner.close();
  }

  #recorded(session: WriterSession): WriterSession {
    const timed = async (isLease: boolean, write: () => Promise<WriteOutcome>): Promise<WriteOutcome> => {
      const sinceMs = this.#clock.monotonicMs();
      const outcome = await write();
      if (isLease && outcome.status === "committed") this.#recorder.leaseWritten(session.role, sinceMs);
      return outcome;
    };
    return {
      role: session.role,
      get pair() {
        return session.pair;
      },
      get mustRemint() {
        return session.mustRemint;
      },
      commit: (records, options) =>
        timed(
          records.some(({ topic }) => topic === COORDINATION_TOPIC),
          () => session.commit(records, options),
        ),
      append: (target, records, options) =>
        timed(target.topic === COORDINATION_TOPIC, () => session.append(target, records, options)),
      retire: (producerId, target, record, options) => session.retire(producerId, target, record, options),
      remint: (options) => session.remint(options),
      close: () => session.close(),
    };
  }
}
