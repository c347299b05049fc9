import {
  type AbortSignalLike,
  type CallOptions,
  type Clock,
  FencedError,
  KrabkaError,
  type Role,
  type Timer,
} from "@krabka/core";
import type { FakeCluster } from "../cluster/fake-cluster.js";
import {
  type Answer,
  type ApiName,
  type Ask,
  ConnectionLostError,
  KafkaCode,
  type PartitionRef,
} from "../cluster/protocol.js";
import { type Deferred, deferred } from "../deferred.js";
import { CallLimit, type Ending } from "./call-limit.js";

export interface ConnectionOptions {
  readonly cluster: FakeCluster;
  readonly clock: Clock;
  readonly clientId: string;
  readonly requestTimeoutMs: number;
  readonly attemptTimeoutMs: number;
}

/** An answer, and whether an earlier one to the same request was lost, so that the request may have run more than once. */
export interface Settled<A extends ApiName> {
  readonly answer: Answer<A>;
  readonly lost: boolean;
}

/** Where a request goes: looked up when it is not known, forgotten when a broker says that it moved. */
export interface Route {
  broker(limit: CallLimit): Promise<number>;
  forget(): void;
}

const MOVED: ReadonlySet<number> = new Set([
  KafkaCode.NOT_LEADER_OR_FOLLOWER,
  KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
  KafkaCode.COORDINATOR_NOT_AVAILABLE,
  KafkaCode.NOT_COORDINATOR,
]);

/** The wait before the n-th repetition: short at first, since the end of a transaction takes a few milliseconds. */
export const retryDelayMs = (attempt: number): number => Math.min(1 << Math.min(attempt, 3), 5);

/** All requests of one fake transport: finds brokers, repeats what may be repeated, keeps to limits. */
export class FakeConnection implements Ending {
  readonly clock: Clock;
  readonly #options: ConnectionOptions;
  readonly #coordinators = new Map<string, number>();
  readonly #leaders = new Map<string, readonly number[]>();
  readonly #endListeners = new Set<(error: KrabkaError) => void>();
  #error: KrabkaError | undefined;
  #frozen: Deferred<void> | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.clock = options.clock;
  }

  get error(): KrabkaError | undefined {
    return this.#error;
  }

  onEnd(listener: (error: KrabkaError) => void): () => void {
    this.#endListeners.add(listener);
    return () => this.#endListeners.delete(listener);
  }

  close(): void {
    if (this.#error !== undefined) return;
    this.#error = new KrabkaError("CLOSED", "The transport was closed");
    for (const listener of [...this.#endListeners]) listener(this.#error);
    this.thaw();
  }

  freeze(): void {
    this.#frozen ??= deferred<void>();
  }

  thaw(): void {
    this.#frozen?.resolve();
    this.#frozen = undefined;
  }

  limit(options: CallOptions | undefined): CallLimit {
    return new CallLimit(this.clock, this, options, this.#options.requestTimeoutMs);
  }

  /** Runs `work` within the bounds of one call. */
  async within<T>(options: CallOptions | undefined, work: (limit: CallLimit) => Promise<T>): Promise<T> {
    const limit = this.limit(options);
    try {
      limit.check();
      return await work(limit);
    } finally {
      limit.dispose();
    }
  }

  /**
   * Sends one request once.
   *
   * @throws {ConnectionLostError} no answer came, so it may have been executed
   * @throws {KrabkaError} the limit's own fault
   */
  async once<A extends ApiName>(
    limit: CallLimit,
    api: A,
    ask: Ask<A>,
    broker: number,
    signal?: AbortSignalLike,
  ): Promise<Answer<A>> {
    await this.#frozen?.promise;
    limit.check();
    const { cluster, clientId, attemptTimeoutMs } = this.#options;
    let timer: Timer | undefined;
    const silence = new Promise<never>((_, reject) => {
      if (api === "Fetch") return;
      timer = this.clock.setTimer(attemptTimeoutMs, () =>
        reject(new ConnectionLostError(`Broker ${broker} did not answer ${api} within ${attemptTimeoutMs} ms`)),
      );
    });
    try {
      return await limit.race(Promise.race([cluster.send({ api, ask, broker, clientId }, signal), silence]));
    } finally {
      timer?.cancel();
      await this.#frozen?.promise;
    }
  }

  /** Sends a request that may be executed twice until it is answered; `wait` names further codes that pass with time. */
  async repeat<A extends ApiName>(
    limit: CallLimit,
    api: A,
    ask: Ask<A>,
    route: Route,
    wait: readonly number[] = [],
    onLost: () => void = () => {},
  ): Promise<Settled<A>> {
    let lost = false;
    for (let attempt = 0; ; attempt++) {
      try {
        const answer = await this.once(limit, api, ask, await route.broker(limit));
        if (answer.ok || !(MOVED.has(answer.code) || wait.includes(answer.code))) return { answer, lost };
        if (MOVED.has(answer.code)) route.forget();
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) throw error;
        lost = true;
        onLost();
        route.forget();
      }
      await limit.sleep(retryDelayMs(attempt));
    }
  }

  /** The way to the coordinator of a transactional id. */
  toCoordinator(transactionalId: string): Route {
    return {
      broker: async (limit) => {
        const known = this.#coordinators.get(transactionalId);
        if (known !== undefined) return known;
        const { answer } = await this.repeat(limit, "FindCoordinator", { transactionalId }, this.toAnyone());
        if (!answer.ok) throw new KrabkaError("UNREACHABLE", `FindCoordinator was refused with code ${answer.code}`);
        this.#coordinators.set(transactionalId, answer.broker);
        return answer.broker;
      },
      forget: () => this.#coordinators.delete(transactionalId),
    };
  }

  /** The way to the leader of a partition. */
  toLeader({ topic, partition }: PartitionRef): Route {
    return {
      broker: async (limit) => {
        const leader = (await this.leadersOf(limit, topic))[partition];
        if (leader !== undefined) return leader;
        throw new KrabkaError("UNKNOWN_TOPIC", `Topic ${JSON.stringify(topic)} has no partition ${partition}`);
      },
      forget: () => this.#leaders.delete(topic),
    };
  }

  /** Any broker that is up; the next one after each that failed. */
  toAnyone(): Route {
    const { cluster } = this.#options;
    let turn = 0;
    return {
      broker: async () => {
        const live = cluster.liveBrokers;
        return live[turn % live.length] as number;
      },
      forget: () => {
        turn += 1;
      },
    };
  }

  /** @throws {KrabkaError} `UNKNOWN_TOPIC`, `UNAUTHORIZED` */
  async leadersOf(limit: CallLimit, topic: string): Promise<readonly number[]> {
    const known = this.#leaders.get(topic);
    if (known !== undefined) return known;
    const { answer } = await this.repeat(limit, "Metadata", { topic }, this.toAnyone());
    if (!answer.ok) throw refusalError(`Topic ${JSON.stringify(topic)}`, answer.code);
    this.#leaders.set(topic, answer.leaders);
    return answer.leaders;
  }
}

/** Codes that say: the pair is dead. One fence has several codes, by request and version. */
export const FENCE_CODES: ReadonlySet<number> = new Set([
  KafkaCode.INVALID_PRODUCER_EPOCH,
  KafkaCode.PRODUCER_FENCED,
  KafkaCode.INVALID_PRODUCER_ID_MAPPING,
]);

export const fencedError = (what: string, code: number, role: Role): FencedError =>
  new FencedError(`The broker refused ${what}: the pair is dead (code ${code})`, { role });

/** The error for a refusal that has nothing to do with the writer's authority. */
export const refusalError = (what: string, code: number): KrabkaError => {
  switch (code) {
    case KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
      return new KrabkaError("UNKNOWN_TOPIC", `${what} does not exist`);
    case KafkaCode.TOPIC_AUTHORIZATION_FAILED:
    case KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
      return new KrabkaError("UNAUTHORIZED", `${what}: a permission is missing (code ${code})`);
    case KafkaCode.INVALID_TRANSACTION_TIMEOUT:
      return new KrabkaError("INVALID_ARGUMENT", `${what}: the broker does not allow this transaction timeout`);
    case KafkaCode.MESSAGE_TOO_LARGE:
      return new KrabkaError("INVALID_ARGUMENT", `${what}: a record is larger than the broker takes`);
    case KafkaCode.CONCURRENT_TRANSACTIONS:
      return new KrabkaError("BUSY", `${what}: the coordinator is still ending an earlier transaction`);
    default:
      return new KrabkaError("UNREACHABLE", `${what} was refused with code ${code}`);
  }
};

/** A request that is not sent again ended without an answer. */
export const unreachable = (what: string, error: unknown): unknown =>
  error instanceof ConnectionLostError
    ? new KrabkaError("UNREACHABLE", `No answer to ${what}; it may have been executed`, { cause: error })
    : error;
