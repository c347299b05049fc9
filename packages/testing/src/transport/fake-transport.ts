import {
  type CallOptions,
  type Capability,
  type Clock,
  type CoordinationTopic,
  DEFAULT_PARTITIONS,
  type DescribeOptions,
  type FeedListener,
  KrabkaError,
  MAX_INT64,
  type Prepared,
  partitionForRole,
  type RawRecord,
  type RecordPosition,
  type Role,
  type RoleDescription,
  type RoleFeed,
  type SessionOptions,
  type TopicPartition,
  type Transport,
  type TransportCapabilities,
  type WriterSession,
} from "@krabka/core";
import type { FakeCluster } from "../cluster/fake-cluster.js";
import { KafkaCode, NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE } from "../cluster/protocol.js";
import type { CallLimit } from "./call-limit.js";
import { FakeConnection, type Route, refusalError, unreachable } from "./fake-connection.js";
import { FakeFeed } from "./fake-feed.js";
import { FakeSession } from "./fake-session.js";
import { mint } from "./mint.js";

export interface FakeTransportOptions {
  readonly cluster: FakeCluster;
  /** The member's own clock, such as a fork of the cluster's. @default the cluster's */
  readonly clock?: Clock | undefined;
  /** The coordination topic. @default `__coordination_state` with 16 partitions */
  readonly topic?: CoordinationTopic | undefined;
  /** By which faults are aimed at this transport. @default "fake" */
  readonly clientId?: string | undefined;
  /** Limit of a call that names none. @default 30000 */
  readonly requestTimeoutMs?: number | undefined;
  /** How long one request may stay without answer before it counts as lost. @default 5000 */
  readonly attemptTimeoutMs?: number | undefined;
  /**
   * With "transaction", `fencedAppend` is declared as unsupported; with "auto", once a broker has refused one as such.
   * @default "auto"
   */
  readonly leaseRecords?: "auto" | "append" | "transaction" | undefined;
  /** Further capabilities to go without, each with its reason. */
  readonly without?: { readonly [K in keyof TransportCapabilities]?: string } | undefined;
}

const capability = (reason: string | undefined): Capability =>
  reason === undefined ? { supported: true } : { supported: false, reason };

const DEFAULT_TOPIC: CoordinationTopic = { name: "__coordination_state", partitions: DEFAULT_PARTITIONS };

/** A transport on a `FakeCluster`: the steps, retries and outcomes of a real one, with every answer under control. */
export class FakeTransport implements Transport {
  readonly name = "fake";
  readonly #options: FakeTransportOptions;
  readonly #connection: FakeConnection;
  readonly #topic: CoordinationTopic;
  readonly #sessions = new Set<FakeSession>();
  #prepared: Promise<Prepared> | undefined;
  #appendRefusal: string | undefined;

  constructor(options: FakeTransportOptions) {
    const { leaseRecords = "auto" } = options;
    this.#options = options;
    if (leaseRecords === "transaction") {
      this.#appendRefusal = "This fake transport was told to write in transactions only";
    }
    this.#topic = options.topic ?? DEFAULT_TOPIC;
    this.#connection = new FakeConnection({
      cluster: options.cluster,
      clock: options.clock ?? options.cluster.clock,
      clientId: options.clientId ?? "fake",
      requestTimeoutMs: options.requestTimeoutMs ?? 30_000,
      attemptTimeoutMs: options.attemptTimeoutMs ?? 5_000,
    });
  }

  get capabilities(): TransportCapabilities {
    const { without = {} } = this.#options;
    return {
      fencedAppend: capability(without.fencedAppend ?? this.#appendRefusal),
      conditionalRemint: capability(without.conditionalRemint),
      describe: capability(without.describe),
      uncommittedReads: capability(without.uncommittedReads),
      binaryHeaders: capability(without.binaryHeaders),
    };
  }

  prepare(options?: CallOptions): Promise<Prepared> {
    this.#prepared ??= this.#prepare(options).catch((error: unknown) => {
      this.#prepared = undefined;
      throw error;
    });
    return this.#prepared;
  }

  follow(role: Role, listener: FeedListener): RoleFeed {
    const isolation = this.capabilities.uncommittedReads.supported ? "read_uncommitted" : "read_committed";
    return new FakeFeed(this.#connection, role, this.#targetOf(role), listener, isolation);
  }

  async appendUnfenced(
    target: TopicPartition,
    records: readonly RawRecord[],
    options?: CallOptions,
  ): Promise<readonly RecordPosition[]> {
    if (records.length === 0) return [];
    return await this.#connection.within(options, async (limit) => {
      const { topic, partition } = target;
      const timestampMs = this.#connection.clock.wallMs();
      const batch = {
        records: records.map((record) => ({ ...record, timestampMs })),
        producerId: NO_PRODUCER_ID,
        epoch: NO_EPOCH,
        baseSequence: NO_SEQUENCE,
        transactional: false,
      };
      const ask = { topic, partition, transactionalId: undefined, batch };
      const route = this.#connection.toLeader(target);
      for (;;) {
        const answer = await this.#connection
          .once(limit, "Produce", ask, await route.broker(limit))
          .catch((error: unknown) => {
            route.forget();
            throw unreachable("Produce", error);
          });
        if (answer.ok) {
          return records.map((_, index) => ({
            topic,
            partition,
            offset: answer.baseOffset + BigInt(index),
            appendedAtMs: answer.appendedAtMs,
          }));
        }
        if (answer.code !== KafkaCode.NOT_LEADER_OR_FOLLOWER)
          throw refusalError(`Partition ${topic}/${partition}`, answer.code);
        route.forget();
        await limit.sleep(1);
      }
    });
  }

  async openSession(role: Role, options: SessionOptions): Promise<WriterSession> {
    const { transactionTimeoutMs } = options;
    return await this.#connection.within(options, async (limit) => {
      const session = new FakeSession({
        connection: this.#connection,
        capabilities: () => this.capabilities,
        onAppendUnsupported: ({ message }) => {
          if (this.#options.leaseRecords !== "append") this.#appendRefusal ??= message;
        },
        role,
        pair: await mint(this.#connection, role, options, limit),
        transactionTimeoutMs,
      });
      this.#sessions.add(session);
      return session;
    });
  }

  async describe(role: Role, options?: DescribeOptions): Promise<RoleDescription> {
    const { describe } = this.capabilities;
    if (!describe.supported) throw new KrabkaError("UNSUPPORTED", describe.reason, { role });
    return await this.#connection.within(options, async (limit) => {
      const ask = { transactionalId: role };
      const route = this.#connection.toCoordinator(role);
      if (options?.requireWrite) await this.#requireWrite(role, route, limit);
      const { answer } = await this.#connection.repeat(limit, "DescribeTransactions", ask, route);
      if (answer.ok) {
        const { producerId, epoch, state } = answer;
        return { pair: { producerId, epoch }, transactionState: state };
      }
      if (answer.code === KafkaCode.TRANSACTIONAL_ID_NOT_FOUND)
        return { pair: undefined, transactionState: "NotFound" };
      throw refusalError(`Role ${JSON.stringify(role)}`, answer.code);
    });
  }

  async partitionsOf(topic: string, options?: CallOptions): Promise<number> {
    return await this.#connection.within(options, async (limit) => {
      return (await this.#connection.leadersOf(limit, topic)).length;
    });
  }

  async close(): Promise<void> {
    this.#connection.close();
    await Promise.all([...this.#sessions].map((session) => session.close()));
  }

  /** As the kafkajs transport does: EndTxn with a pair that is nobody's takes the same right as a mint. */
  async #requireWrite(role: Role, route: Route, limit: CallLimit): Promise<void> {
    const ask = { transactionalId: role, producerId: MAX_INT64, epoch: 0, commit: false };
    const { answer } = await this.#connection.repeat(limit, "EndTxn", ask, route);
    if (!answer.ok && answer.code === KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) {
      throw refusalError(`Role ${JSON.stringify(role)}`, answer.code);
    }
  }

  /** Stops this member's network as a stopped process does: nothing goes out and no answer comes in until `thaw`. */
  freeze(): void {
    this.#connection.freeze();
  }

  thaw(): void {
    this.#connection.thaw();
  }

  #targetOf(role: Role): TopicPartition {
    return { topic: this.#topic.name, partition: partitionForRole(role, this.#topic.partitions) };
  }

  async #prepare(options: CallOptions | undefined): Promise<Prepared> {
    return await this.#connection.within(options, async (limit) => {
      const { name, partitions } = this.#topic;
      const anyone = this.#connection.toAnyone();
      const settings = { partitions, cleanupPolicy: "compact", timestampType: "LogAppendTime" } as const;
      const created = await this.#connection.repeat(limit, "CreateTopics", { topic: name, settings }, anyone);
      if (!created.answer.ok && created.answer.code !== KafkaCode.TOPIC_ALREADY_EXISTS) {
        throw refusalError(`Topic ${JSON.stringify(name)}`, created.answer.code);
      }
      const { answer } = await this.#connection.repeat(limit, "DescribeConfigs", { topic: name }, anyone);
      if (!answer.ok) throw refusalError(`Topic ${JSON.stringify(name)}`, answer.code);
      const found = answer.settings;
      requireSetting(name, "cleanup.policy", found.cleanupPolicy, "compact");
      requireSetting(name, "partition count", found.partitions, partitions);
      const warnings =
        found.replicationFactor === 1
          ? [`Topic ${JSON.stringify(name)} has replication factor 1: one lost disk loses every role`]
          : [];
      return { topic: this.#topic, warnings };
    });
  }
}

const requireSetting = (topic: string, setting: string, found: unknown, wanted: unknown): void => {
  if (found === wanted) return;
  throw new KrabkaError(
    "TOPIC_MISCONFIGURED",
    `Topic ${JSON.stringify(topic)}: ${setting} is ${JSON.stringify(found)}; wanted is ${JSON.stringify(wanted)}`,
  );
};
