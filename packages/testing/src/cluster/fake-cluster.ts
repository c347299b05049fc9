import type { AbortSignalLike, Clock, ProducerPair, RawRecord, ReadRecord } from "@krabka/core";
import { type Deferred, deferred } from "../deferred.js";
import { TransactionCoordinator } from "./coordinator.js";
import { type FakeCall, Faults } from "./faults.js";
import { PartitionLog } from "./partition-log.js";
import {
  type Answer,
  type ApiName,
  type Ask,
  ConnectionLostError,
  type FullTopicSettings,
  type Isolation,
  KafkaCode,
  type PartitionRef,
  refuse,
  type StoredBatch,
  type TopicSettings,
  type TransactionAsk,
} from "./protocol.js";

export interface FakeClusterOptions {
  readonly clock: Clock;
  /** @default 3 */
  readonly brokers?: number | undefined;
  /** What each request takes on its way there, and each answer back. @default 0: it takes promise jobs, but no time */
  readonly latencyMs?: (() => number) | undefined;
  /** Time between a decided transaction and its markers. @default 0 */
  readonly markerDelayMs?: number | undefined;
  /** `message.max.bytes` @default 1048588 */
  readonly maxBatchBytes?: number | undefined;
  /** `producer.id.expiration.ms` @default a day */
  readonly producerIdExpirationMs?: number | undefined;
  /** `transactional.id.expiration.ms` @default 7 days */
  readonly transactionalIdExpirationMs?: number | undefined;
  /** `transaction.max.timeout.ms` @default 15 minutes */
  readonly maxTransactionTimeoutMs?: number | undefined;
  /** Whether a metadata request creates the topic it asks for. @default undefined: it does not */
  readonly autoCreate?: TopicSettings | undefined;
}

interface Topic {
  readonly name: string;
  readonly settings: FullTopicSettings;
  readonly partitions: { readonly log: PartitionLog; leader: number }[];
}

/** A request that was not answered yet. */
interface Flight {
  readonly clientId: string;
  readonly cut: Deferred<never>;
}

interface Broker {
  alive: boolean;
  nextId: bigint;
  lastId: bigint;
}

const ID_BLOCK = 1_000n;
const DAY_MS = 86_400_000;

/** Java's `String.hashCode`, by which Kafka places a transactional id. */
const javaHash = (text: string): number => {
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
  return hash & 0x7fffffff;
};

/**
 * A Kafka cluster in memory, as far as Krabka leans on one: the offsets, markers, producer states and transactional ids
 * behave as the broker's do. Time comes from the clock alone, so a run with the same calls gives the same result.
 */
export class FakeCluster {
  readonly clock: Clock;
  readonly faults: Faults;
  /** Every request that arrived, oldest first; a test may set its length to 0. */
  readonly requests: FakeCall[] = [];
  readonly #options: FakeClusterOptions;
  readonly #brokers: Broker[];
  readonly #topics = new Map<string, Topic>();
  readonly #coordinator: TransactionCoordinator;
  readonly #coordinatorOf = new Map<string, number>();
  readonly #flights = new Set<Flight>();
  #nextBlock: bigint;

  constructor(options: FakeClusterOptions) {
    this.clock = options.clock;
    this.#options = options;
    this.faults = new Faults(
      options.clock,
      (call) => new ConnectionLostError(`Connection to broker ${call.broker} broke during ${call.api}`),
    );
    const count = options.brokers ?? 3;
    this.#brokers = Array.from({ length: count }, (_, index) => ({
      alive: true,
      nextId: BigInt(index) * ID_BLOCK,
      lastId: BigInt(index) * ID_BLOCK + ID_BLOCK - 1n,
    }));
    this.#nextBlock = BigInt(count) * ID_BLOCK;
    this.#coordinator = new TransactionCoordinator({
      clock: options.clock,
      nextProducerId: (id) => this.#nextProducerId(this.coordinatorOf(id)),
      writeMarkers: (ask, partitions) => this.#writeMarkers(ask, partitions),
      transactionalIdExpirationMs: options.transactionalIdExpirationMs ?? 7 * DAY_MS,
      maxTransactionTimeoutMs: options.maxTransactionTimeoutMs ?? 15 * 60_000,
    });
  }

  /** Ids of the brokers that are up. */
  get liveBrokers(): readonly number[] {
    return this.#brokers.flatMap((broker, id) => (broker.alive ? [id] : []));
  }

  createTopic(name: string, settings: TopicSettings = { partitions: 1 }): void {
    if (this.#topics.has(name)) throw new Error(`Topic ${JSON.stringify(name)} exists already`);
    const full: FullTopicSettings = {
      partitions: settings.partitions,
      replicationFactor: settings.replicationFactor ?? Math.min(3, this.#brokers.length),
      cleanupPolicy: settings.cleanupPolicy ?? "delete",
      timestampType: settings.timestampType ?? "CreateTime",
      deleteRetentionMs: settings.deleteRetentionMs ?? DAY_MS,
    };
    const limits = {
      maxBatchBytes: this.#options.maxBatchBytes ?? 1_048_588,
      producerIdExpirationMs: this.#options.producerIdExpirationMs ?? DAY_MS,
    };
    const first = javaHash(name);
    this.#topics.set(name, {
      name,
      settings: full,
      partitions: Array.from({ length: full.partitions }, (_, index) => ({
        log: new PartitionLog(full, this.clock, limits),
        leader: this.#liveFrom(first + index),
      })),
    });
  }

  /** Sends a request to a broker. @throws {ConnectionLostError} when the connection breaks on the way there or back */
  async send<A extends ApiName>(call: FakeCall<A>, signal?: AbortSignalLike): Promise<Answer<A>> {
    const flight: Flight = { clientId: call.clientId, cut: deferred<never>() };
    flight.cut.promise.catch(() => {});
    this.#flights.add(flight);
    try {
      return await Promise.race([flight.cut.promise, this.#deliver(call, signal)]);
    } finally {
      this.#flights.delete(flight);
    }
  }

  /** Breaks the connections of one client: what it has sent may or may not be executed, and no answer comes. */
  cutConnections(clientId: string): void {
    for (const flight of this.#flights) {
      if (flight.clientId !== clientId) continue;
      flight.cut.reject(new ConnectionLostError(`The connections of ${JSON.stringify(clientId)} were cut`));
    }
  }

  /** The broker that coordinates a transactional id. */
  coordinatorOf(transactionalId: string): number {
    const moved = this.#coordinatorOf.get(transactionalId);
    return this.#liveFrom(moved ?? javaHash(transactionalId) % 50);
  }

  /** Moves the coordinator of one transactional id; what it knows moves along. */
  moveCoordinator(transactionalId: string, broker: number): void {
    this.#coordinatorOf.set(transactionalId, this.#live(broker));
  }

  leaderOf(ref: PartitionRef): number {
    return this.#partition(ref).leader;
  }

  moveLeader(ref: PartitionRef, broker: number): void {
    this.#partition(ref).leader = this.#live(broker);
  }

  /** Takes a broker down. Leaders and coordinators move to the next one that is up; nothing acknowledged is lost. */
  stopBroker(id: number): void {
    const broker = this.#brokers[id];
    if (broker === undefined || this.liveBrokers.length <= 1) throw new Error(`Broker ${id} can't be stopped`);
    broker.alive = false;
    for (const { partitions } of this.#topics.values()) {
      for (const partition of partitions) {
        if (partition.leader === id) partition.leader = this.#liveFrom(id + 1);
      }
    }
  }

  /** Brings a broker back. It takes a fresh block of producer ids: the rest of the old one is lost (KIP-730). */
  startBroker(id: number): void {
    const broker = this.#brokers[id];
    if (broker === undefined || broker.alive) throw new Error(`Broker ${id} can't be started`);
    broker.alive = true;
    this.#takeBlock(broker);
  }

  /** A stranger mints for the role, as an admin client would to fence its producer. */
  mint(transactionalId: string, transactionTimeoutMs = 60_000): ProducerPair | undefined {
    const answer = this.#coordinator.initProducerId({ transactionalId, transactionTimeoutMs });
    return answer.ok ? { producerId: answer.producerId, epoch: answer.epoch } : undefined;
  }

  /** The coordinator's own word, past all faults. */
  describe(transactionalId: string): Answer<"DescribeTransactions"> {
    return this.#coordinator.describe(transactionalId);
  }

  /** Sets the epoch of an idle transactional id, for tests near the end of the range. */
  setEpoch(transactionalId: string, epoch: number): void {
    this.#coordinator.setEpoch(transactionalId, epoch);
  }

  /** Forgets a transactional id at once, as its expiry would. */
  expireTransactionalId(transactionalId: string): void {
    this.#coordinator.expire(transactionalId);
  }

  /** Makes a broker hand out producer ids from here on, up to the end of the block. */
  setNextProducerId(broker: number, producerId: bigint): void {
    const target = this.#brokers[this.#live(broker)] as Broker;
    target.nextId = producerId;
    target.lastId = (producerId / ID_BLOCK) * ID_BLOCK + ID_BLOCK - 1n;
  }

  /** The log of one partition, to look at or to compact. */
  log(ref: PartitionRef): PartitionLog {
    return this.#partition(ref).log;
  }

  /** Appends as an ordinary producer does, past all faults. @returns offset of the first record */
  append(ref: PartitionRef, records: readonly RawRecord[]): bigint {
    const appended = this.log(ref).append({
      records: records.map((record) => ({ ...record, timestampMs: this.clock.wallMs() })),
      producerId: -1n,
      epoch: -1,
      baseSequence: -1,
      transactional: false,
    });
    if (!appended.ok) throw new Error(`The partition refused the batch with code ${appended.code}`);
    return appended.baseOffset;
  }

  /** All records that a reader of this isolation level gets to see at this moment. */
  read(ref: PartitionRef, isolation: Isolation = "read_committed"): readonly ReadRecord[] {
    const log = this.log(ref);
    const end = isolation === "read_committed" ? log.lastStableOffset : log.highWatermark;
    const aborted = log.abortedFrom(log.startOffset);
    const records: ReadRecord[] = [];
    let offset = log.startOffset;
    while (offset < end) {
      const batches = log.read(offset, end) ?? [];
      for (const batch of batches) {
        for (const { key, value, headers, offset: at } of batch.records) {
          const hidden =
            isolation === "read_committed" &&
            batch.transactional &&
            aborted.some(
              (one) => one.producerId === batch.producerId && one.firstOffset <= at && at < one.markerOffset,
            );
          if (!hidden && at >= log.startOffset) records.push({ key, value, headers, offset: at });
        }
      }
      const last = batches.at(-1);
      if (last === undefined) break;
      offset = last.lastOffset + 1n;
    }
    return records;
  }

  /** Stops the cluster's timers. */
  close(): void {
    this.faults.clear();
    this.#coordinator.close();
  }

  async #deliver<A extends ApiName>(call: FakeCall<A>, signal: AbortSignalLike | undefined): Promise<Answer<A>> {
    const plan = this.faults.planFor(call);
    await this.#travel();
    await plan?.before();
    if (!this.#brokers[call.broker]?.alive) throw new ConnectionLostError(`Broker ${call.broker} is down`);
    this.requests.push(call);
    const answer: Answer<A> =
      plan?.errorCode === undefined ? await this.#execute(call, signal) : refuse(plan.errorCode);
    await plan?.after();
    await this.#travel();
    return answer;
  }

  async #travel(): Promise<void> {
    const ms = this.#options.latencyMs?.() ?? 0;
    if (ms <= 0) return;
    await new Promise<void>((resolve) => this.clock.setTimer(ms, resolve));
  }

  async #execute<A extends ApiName>(call: FakeCall<A>, signal: AbortSignalLike | undefined): Promise<Answer<A>> {
    const handlers: { readonly [K in ApiName]: (ask: Ask<K>) => Answer<K> | Promise<Answer<K>> } = {
      Metadata: ({ topic }) => this.#metadata(topic),
      CreateTopics: ({ topic, settings }) => {
        if (this.#topics.has(topic)) return refuse(KafkaCode.TOPIC_ALREADY_EXISTS);
        this.createTopic(topic, settings);
        return { ok: true };
      },
      DescribeConfigs: ({ topic }) => {
        const found = this.#topics.get(topic);
        return found === undefined
          ? refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
          : { ok: true, settings: found.settings };
      },
      FindCoordinator: ({ transactionalId }) => ({ ok: true, broker: this.coordinatorOf(transactionalId) }),
      InitProducerId: (ask) => this.#coordinated(call.broker, ask, () => this.#coordinator.initProducerId(ask)),
      AddPartitionsToTxn: (ask) => this.#coordinated(call.broker, ask, () => this.#addPartitions(ask)),
      EndTxn: (ask) => this.#coordinated(call.broker, ask, () => this.#coordinator.endTxn(ask)),
      DescribeTransactions: (ask) =>
        this.#coordinated(call.broker, ask, () => this.#coordinator.describe(ask.transactionalId)),
      Produce: (ask) => this.#led(call.broker, ask, (log) => this.#produce(ask, log)),
      Fetch: (ask) => this.#fetch(call.broker, ask, signal),
      ListOffsets: ({ at, isolation, ...ref }) =>
        this.#led(call.broker, ref, (log) => ({
          ok: true,
          offset:
            at === "earliest"
              ? log.startOffset
              : isolation === "read_committed"
                ? log.lastStableOffset
                : log.highWatermark,
        })),
      WriteTxnMarkers: (ask) =>
        this.#led(call.broker, ask, (log) => log.appendMarker(ask.producerId, ask.epoch, ask.commit)),
    };
    return await handlers[call.api](call.ask);
  }

  #metadata(topic: string): Answer<"Metadata"> {
    if (!this.#topics.has(topic) && this.#options.autoCreate !== undefined) {
      this.createTopic(topic, this.#options.autoCreate);
    }
    const found = this.#topics.get(topic);
    if (found === undefined) return refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
    return { ok: true, leaders: found.partitions.map(({ leader }) => leader) };
  }

  #coordinated<A extends ApiName>(broker: number, ask: { transactionalId: string }, run: () => Answer<A>): Answer<A> {
    return this.coordinatorOf(ask.transactionalId) === broker ? run() : refuse(KafkaCode.NOT_COORDINATOR);
  }

  #led<T>(broker: number, ref: PartitionRef, run: (log: PartitionLog) => T): T | ReturnType<typeof refuse> {
    const partition = this.#topics.get(ref.topic)?.partitions[ref.partition];
    if (partition === undefined) return refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
    return partition.leader === broker ? run(partition.log) : refuse(KafkaCode.NOT_LEADER_OR_FOLLOWER);
  }

  #addPartitions(ask: Ask<"AddPartitionsToTxn">): Answer<"AddPartitionsToTxn"> {
    const known = ask.partitions.every((ref) => this.#topics.get(ref.topic)?.partitions[ref.partition] !== undefined);
    return known ? this.#coordinator.addPartitions(ask) : refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
  }

  #produce(ask: Ask<"Produce">, log: PartitionLog): Answer<"Produce"> {
    const { batch, transactionalId } = ask;
    if (batch.transactional && !log.hasOpenTransaction(batch.producerId)) {
      const { producerId, epoch } = batch;
      const verified = this.#coordinator.verify({ transactionalId: transactionalId ?? "", producerId, epoch }, ask);
      if (!verified.ok) return verified;
    }
    return log.append(batch);
  }

  async #fetch(broker: number, ask: Ask<"Fetch">, signal: AbortSignalLike | undefined): Promise<Answer<"Fetch">> {
    const look = () =>
      this.#led(broker, ask, (log): Answer<"Fetch"> => {
        const end = ask.isolation === "read_committed" ? log.lastStableOffset : log.highWatermark;
        const batches: readonly StoredBatch[] | undefined = log.read(ask.offset, end);
        if (batches === undefined) return refuse(KafkaCode.OFFSET_OUT_OF_RANGE);
        return {
          ok: true,
          batches,
          highWatermark: log.highWatermark,
          lastStableOffset: log.lastStableOffset,
          logStartOffset: log.startOffset,
          aborted: ask.isolation === "read_committed" ? log.abortedFrom(ask.offset) : [],
        };
      });
    const first = look();
    if (!first.ok || first.batches.length > 0 || ask.maxWaitMs <= 0 || signal?.aborted) return first;
    await new Promise<void>((resolve) => {
      const done = () => {
        stop();
        timer?.cancel();
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const stop = this.log(ask).onAppend(done);
      const timer = Number.isFinite(ask.maxWaitMs) ? this.clock.setTimer(ask.maxWaitMs, done) : undefined;
      signal?.addEventListener("abort", done, { once: true });
    });
    return look();
  }

  async #writeMarkers(
    ask: TransactionAsk & { readonly commit: boolean },
    partitions: readonly PartitionRef[],
  ): Promise<void> {
    const delayMs = this.#options.markerDelayMs ?? 0;
    if (delayMs > 0) await new Promise<void>((resolve) => this.clock.setTimer(delayMs, resolve));
    await Promise.all(partitions.map((ref) => this.#writeMarker({ ...ask, ...ref })));
  }

  /** The coordinator repeats a marker until the partition's leader took it. */
  async #writeMarker(ask: Ask<"WriteTxnMarkers">): Promise<void> {
    for (;;) {
      try {
        const call = { api: "WriteTxnMarkers", ask, broker: this.leaderOf(ask), clientId: "coordinator" } as const;
        const answer = await this.send(call);
        if (answer.ok || answer.code === KafkaCode.INVALID_PRODUCER_EPOCH) return;
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) throw error;
      }
      await new Promise<void>((resolve) => this.clock.setTimer(10, resolve));
    }
  }

  #nextProducerId(id: number): bigint {
    const broker = this.#brokers[id] as Broker;
    if (broker.nextId > broker.lastId) this.#takeBlock(broker);
    return broker.nextId++;
  }

  #takeBlock(broker: Broker): void {
    broker.nextId = this.#nextBlock;
    broker.lastId = this.#nextBlock + ID_BLOCK - 1n;
    this.#nextBlock += ID_BLOCK;
  }

  #partition({ topic, partition }: PartitionRef): Topic["partitions"][number] {
    const found = this.#topics.get(topic)?.partitions[partition];
    if (found === undefined) throw new Error(`There is no partition ${partition} of topic ${JSON.stringify(topic)}`);
    return found;
  }

  #live(id: number): number {
    if (!this.#brokers[id]?.alive) throw new Error(`Broker ${id} is not up; up are ${this.liveBrokers.join(", ")}`);
    return id;
  }

  #liveFrom(start: number): number {
    const count = this.#brokers.length;
    for (let step = 0; step < count; step++) {
      const id = (start + step) % count;
      if (this.#brokers[id]?.alive) return id;
    }
    throw new Error("No broker is up");
  }
}
