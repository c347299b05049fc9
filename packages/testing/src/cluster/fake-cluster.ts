import type { AbortSignalLike, Clock, ProducerPair, RawRecord, ReadRecord } from "@krabka/core";
import { type Deferred, deferred } from "../deferred.js";
import { Brokers, javaHash } from "./brokers.js";
import { TransactionCoordinator } from "./coordinator.js";
import { type FakeCall, Faults } from "./faults.js";
import type { PartitionLog } from "./partition-log.js";
import {
  type Answer,
  type ApiName,
  type Ask,
  ConnectionLostError,
  type Isolation,
  KafkaCode,
  NO_EPOCH,
  NO_PRODUCER_ID,
  NO_SEQUENCE,
  type PartitionRef,
  refuse,
  type TopicSettings,
  type TransactionAsk,
} from "./protocol.js";
import { RequestHandlers } from "./request-handlers.js";
import { Topics } from "./topics.js";

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
  /** Told of every request when it was executed, with its answer, which may yet be lost. */
  readonly onExecuted?: ((call: FakeCall, answer: Answer<ApiName>) => void) | undefined;
}

/** A request that was not answered yet. */
interface Flight {
  readonly call: FakeCall;
  readonly cut: Deferred<never>;
}

const DAY_MS = 86_400_000;
/** Partitions of `__transaction_state`, over which Kafka spreads the transactional ids. */
const COORDINATOR_PARTITIONS = 50;
const MARKER_RETRY_MS = 10;

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
  readonly #brokers: Brokers;
  readonly #topics: Topics;
  readonly #coordinator: TransactionCoordinator;
  readonly #movedCoordinators = new Map<string, number>();
  readonly #handlers: RequestHandlers;
  readonly #flights = new Set<Flight>();

  constructor(options: FakeClusterOptions) {
    const { clock } = options;
    this.clock = clock;
    this.#options = options;
    this.faults = new Faults(clock, (call) => lost(call, "the connection broke"));
    this.#brokers = new Brokers(options.brokers ?? 3);
    this.#topics = new Topics(clock, this.#brokers, {
      maxBatchBytes: options.maxBatchBytes ?? 1_048_588,
      producerIdExpirationMs: options.producerIdExpirationMs ?? DAY_MS,
    });
    this.#coordinator = new TransactionCoordinator({
      clock,
      nextProducerId: (id) => this.#brokers.nextProducerId(this.coordinatorOf(id)),
      writeMarkers: (ask, partitions) => this.#writeMarkers(ask, partitions),
      transactionalIdExpirationMs: options.transactionalIdExpirationMs ?? 7 * DAY_MS,
      maxTransactionTimeoutMs: options.maxTransactionTimeoutMs ?? 15 * 60_000,
    });
    this.#handlers = new RequestHandlers({
      clock,
      topics: this.#topics,
      coordinator: this.#coordinator,
      coordinatorOf: (id) => this.coordinatorOf(id),
      autoCreate: options.autoCreate,
    });
  }

  /** Ids of the brokers that are up. */
  get liveBrokers(): readonly number[] {
    return this.#brokers.live;
  }

  createTopic(name: string, settings: TopicSettings = { partitions: 1 }): void {
    this.#topics.create(name, settings);
  }

  /** Sends a request to a broker. @throws {ConnectionLostError} when the connection breaks on the way there or back */
  async send<A extends ApiName>(call: FakeCall<A>, signal?: AbortSignalLike): Promise<Answer<A>> {
    const flight: Flight = { call, cut: deferred<never>() };
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
    this.#cut((call) => call.clientId === clientId, "the client's connections were cut");
  }

  /** The broker that coordinates a transactional id. */
  coordinatorOf(transactionalId: string): number {
    const placed = this.#movedCoordinators.get(transactionalId) ?? javaHash(transactionalId) % COORDINATOR_PARTITIONS;
    return this.#brokers.liveFrom(placed);
  }

  /** Moves the coordinator of one transactional id; what it knows moves along. */
  moveCoordinator(transactionalId: string, broker: number): void {
    this.#movedCoordinators.set(transactionalId, this.#brokers.mustBeLive(broker));
  }

  leaderOf(ref: PartitionRef): number {
    return this.#topics.partition(ref).leader;
  }

  moveLeader(ref: PartitionRef, broker: number): void {
    this.#topics.partition(ref).leader = this.#brokers.mustBeLive(broker);
  }

  /**
   * Takes a broker down: its connections break, its leaders and coordinators move to the next one that is up, and nothing
   * acknowledged is lost.
   */
  stopBroker(id: number): void {
    this.#brokers.stop(id);
    this.#topics.leave(id);
    this.#cut((call) => call.broker === id, "the broker stopped");
  }

  /** Brings a broker back. It takes a fresh block of producer ids. */
  startBroker(id: number): void {
    this.#brokers.start(id);
  }

  /** Makes a broker hand out producer ids from here on, up to the end of the block. */
  setNextProducerId(broker: number, producerId: bigint): void {
    this.#brokers.setNextProducerId(broker, producerId);
  }

  /**
   * A stranger mints for the role, as an admin client would to fence its producer.
   *
   * @returns undefined where the answer is an error, such as `CONCURRENT_TRANSACTIONS`
   */
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

  /** The log of one partition, to look at or to compact. */
  log(ref: PartitionRef): PartitionLog {
    return this.#topics.partition(ref).log;
  }

  /** Appends as an ordinary producer does, past all faults. @returns offset of the first record */
  append(ref: PartitionRef, records: readonly RawRecord[]): bigint {
    const appended = this.log(ref).append({
      records: records.map((record) => ({ ...record, timestampMs: this.clock.wallMs() })),
      producerId: NO_PRODUCER_ID,
      epoch: NO_EPOCH,
      baseSequence: NO_SEQUENCE,
      transactional: false,
    });
    if (!appended.ok) throw new Error(`The partition refused the batch with code ${appended.code}`);
    return appended.baseOffset;
  }

  /** All records that a reader of this isolation level gets to see at this moment. */
  read(ref: PartitionRef, isolation: Isolation = "read_committed"): readonly ReadRecord[] {
    return this.log(ref).visible(isolation);
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
    if (!this.#brokers.isLive(call.broker)) throw lost(call, "the broker is down");
    this.requests.push(call);
    const answer: Answer<A> =
      plan?.errorCode === undefined ? await this.#handlers.execute(call, signal) : refuse(plan.errorCode);
    this.#options.onExecuted?.(call, answer);
    await plan?.after();
    await this.#travel();
    return answer;
  }

  async #travel(): Promise<void> {
    const ms = this.#options.latencyMs?.() ?? 0;
    if (ms > 0) await this.#sleep(ms);
  }

  #sleep(ms: number): Promise<void> {
    return new Promise<void>((resolve) => this.clock.setTimer(ms, resolve));
  }

  #cut(matches: (call: FakeCall) => boolean, why: string): void {
    for (const { call, cut } of this.#flights) if (matches(call)) cut.reject(lost(call, why));
  }

  async #writeMarkers(
    ask: TransactionAsk & { readonly commit: boolean },
    partitions: readonly PartitionRef[],
  ): Promise<void> {
    const delayMs = this.#options.markerDelayMs ?? 0;
    if (delayMs > 0) await this.#sleep(delayMs);
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
      await this.#sleep(MARKER_RETRY_MS);
    }
  }
}

const lost = (call: FakeCall, why: string): ConnectionLostError =>
  new ConnectionLostError(`No answer to ${call.api} from broker ${call.broker}: ${why}`);
