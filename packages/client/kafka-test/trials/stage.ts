import { randomUUID } from "node:crypto";
import { CoordinationClient, KrabkaError, type Logger, MemberId, Role } from "@krabka/client";
import { type FencingToken, type ProducerPair, TOKEN_HEADER, type Transport, type WriterSession } from "@krabka/core";
import { coordinatorOf, type KafkaCluster, type RunningFaultProxy, startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import kafkajs from "kafkajs";
import { MemberProcess } from "./member-process.js";
import { SuspendableClock } from "./suspendable-clock.js";
import type { MakeTransport } from "./trial.js";

export interface StageParts {
  readonly transportName: string;
  readonly makeTransport: MakeTransport;
  readonly bootstrap: string;
  readonly cluster: KafkaCluster | undefined;
}

export interface MemberOptions {
  readonly leaseMs: number;
  readonly clientId?: string;
  readonly autoRenew?: boolean;
  readonly logger?: Logger;
}

/** A member with a machine and a network of its own. */
export interface Member {
  readonly id: MemberId;
  readonly client: CoordinationClient;
  readonly proxy: RunningFaultProxy;
  /** Stops its clocks and swallows what it sends and what it is sent. */
  suspend(): void;
  resume(): void;
}

/** A record that a committed reader found. */
export interface Found {
  readonly value: string;
  readonly partition: number;
  readonly token: string | undefined;
}

/** How long a wait for something that must happen may take. */
export const LIMIT = { timeoutMs: 30_000 };
const READ_LIMIT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 1_000;
/** Begins the record that is appended so that a reader knows the end. */
const LAST = "last-";
const SESSION = { transactionTimeoutMs: 60_000, mayMint: () => true };
const { logLevel, Partitioners } = kafkajs;

/** Brokers, members, and somebody outside who knows the truth. Ends with all that was opened on it. */
export class Stage implements AsyncDisposable {
  readonly #parts: StageParts;
  readonly #kafka: kafkajs.Kafka;
  readonly #operator: Transport;
  readonly #observer: CoordinationClient;
  readonly #closing: (() => Promise<unknown>)[] = [];

  constructor(parts: StageParts) {
    this.#parts = parts;
    const config = { brokers: parts.bootstrap.split(","), clientId: "operator", logLevel: logLevel.NOTHING };
    this.#kafka = new kafkajs.Kafka(config);
    this.#operator = new KafkaJsTransport({ kafka: config });
    this.#observer = new CoordinationClient(this.#operator);
    this.#closing.push(() => this.#observer.close());
  }

  /** The cluster that the trial asked for. */
  get cluster(): KafkaCluster {
    if (this.#parts.cluster === undefined) throw new Error("The trial has no cluster of its own");
    return this.#parts.cluster;
  }

  role(): Role {
    return Role.of(`role-${randomUUID().slice(0, 8)}`);
  }

  async topic(numPartitions = 1): Promise<string> {
    const topic = `commands-${randomUUID().slice(0, 8)}`;
    await this.#withAdmin((admin) =>
      admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: -1 }], waitForLeaders: false }),
    );
    await until("the topic to be led", async () => {
      // kafkajs throws for a topic that not every broker knows yet.
      const partitions = await this.#partitions(topic).catch(() => []);
      return partitions.length > 0 && partitions.every(({ leader }) => leader >= 0);
    });
    return topic;
  }

  async member(name: string, { leaseMs, clientId = name, autoRenew = true, logger }: MemberOptions): Promise<Member> {
    const proxy = await this.#proxy();
    const clock = new SuspendableClock();
    const { bootstrap } = proxy;
    const transport = this.#parts.makeTransport({ bootstrap, clientId, requestTimeoutMs: REQUEST_TIMEOUT_MS });
    const client = new CoordinationClient(transport, { leaseMs, clock, autoRenew, logger });
    const suspend = (): void => {
      clock.suspend();
      proxy.blackhole(true);
    };
    const resume = (): void => {
      proxy.blackhole(false);
      clock.resume();
    };
    this.#closing.push(() => {
      resume();
      return client.close();
    });
    return { id: MemberId.of(name), client, proxy, suspend, resume };
  }

  /** A member in a process of its own that campaigns for these roles. */
  async process(name: string, roles: readonly Role[], { leaseMs }: MemberOptions): Promise<MemberProcess> {
    const proxy = await this.#proxy();
    const { transportName } = this.#parts;
    const options = { transport: transportName, bootstrap: proxy.bootstrap, member: name, roles, leaseMs };
    const member = MemberProcess.start({ ...options, requestTimeoutMs: REQUEST_TIMEOUT_MS }, proxy);
    this.#closing.push(async () => member.kill());
    return member;
  }

  /** Somebody else's mint for a role, past all members. */
  async strangerSession(role: Role): Promise<WriterSession> {
    await this.#operator.prepare(LIMIT);
    for (;;) {
      try {
        return await this.#operator.openSession(role, { ...SESSION, ...LIMIT });
      } catch (error) {
        if (!KrabkaError.is(error) || error.code !== "BUSY") throw error;
      }
    }
  }

  /** What the coordinator says about a role. */
  async pairOf(role: Role): Promise<ProducerPair | undefined> {
    return (await this.#operator.describe(role, LIMIT)).pair;
  }

  async transactionStateOf(role: Role): Promise<string> {
    return (await this.#operator.describe(role, LIMIT)).transactionState;
  }

  /** The token of the lease record that the log holds for a role. */
  async leaseTokenOf(role: Role): Promise<FencingToken | undefined> {
    for await (const { leader } of this.#observer.observe(role)) return leader?.token;
    return undefined;
  }

  /** Resolves once the log has the member's registration. */
  async registered(role: Role, member: string): Promise<void> {
    for await (const { roster } of this.#observer.observe(role))
      if (roster.some((entry) => entry.member === member)) return;
  }

  /** The broker that coordinates a role. */
  coordinatorOf(role: Role): Promise<number> {
    return coordinatorOf(this.#parts.bootstrap, role);
  }

  /** Resolves once all replicas of these topics are in sync, as an operator waits for between two restarts. */
  async inSync(...topics: readonly string[]): Promise<void> {
    const all = ["__coordination_state", "__transaction_state", ...topics];
    await until("all replicas to be in sync", async () => {
      // kafkajs throws for a topic that not every broker knows yet.
      const partitions = await Promise.all(all.map((topic) => this.#partitions(topic))).catch(() => undefined);
      return partitions?.flat().every(({ isr, replicas }) => isr.length === replicas.length) ?? false;
    });
  }

  /** All that a new committed reader finds in a topic once everything before now is decided, partition by partition. */
  async found(topic: string): Promise<readonly Found[]> {
    const partitions = (await this.#partitions(topic)).map(({ partitionId }) => partitionId);
    const last = await this.#appendToEach(topic, partitions);
    let found: readonly Found[] | undefined;
    await until(`a reader to see what ${topic} holds`, async () => {
      found = await this.#read(topic, partitions, last).catch(() => undefined);
      return found !== undefined;
    });
    return found ?? [];
  }

  /** @throws when kafkajs gives up, as it does while the coordinator of groups is loading on a fresh broker */
  async #read(topic: string, partitions: readonly number[], last: string): Promise<readonly Found[]> {
    const consumer = this.#kafka.consumer({ groupId: randomUUID() });
    const found: Found[] = [];
    const open = new Set(partitions);
    try {
      await consumer.connect();
      await consumer.subscribe({ topic, fromBeginning: true });
      await new Promise<void>((resolve, reject) => {
        setTimeout(reject, READ_LIMIT_MS).unref();
        consumer.on("consumer.crash", ({ payload }) => reject(payload.error));
        const eachMessage: kafkajs.EachMessageHandler = async ({ partition, message }) => {
          const value = message.value?.toString() ?? "";
          const token = message.headers?.[TOKEN_HEADER]?.toString();
          if (value === last) open.delete(partition);
          else if (!value.startsWith(LAST)) found.push({ value, partition, token });
          if (open.size === 0) resolve();
        };
        consumer.run({ eachMessage }).catch(reject);
      });
    } finally {
      await consumer.disconnect();
    }
    return found.sort((one, other) => one.partition - other.partition);
  }

  async values(topic: string): Promise<readonly string[]> {
    return (await this.found(topic)).map(({ value }) => value);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The last opened first: clients before the proxies that they go through.
    for (const close of this.#closing.reverse()) await close();
  }

  async #proxy(): Promise<RunningFaultProxy> {
    const proxy = await startFaultProxy({ bootstrap: this.#parts.bootstrap });
    this.#closing.push(async () => {
      proxy.reset();
      await proxy.close();
    });
    return proxy;
  }

  async #partitions(topic: string): Promise<readonly kafkajs.PartitionMetadata[]> {
    return this.#withAdmin(
      async (admin) => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]?.partitions ?? [],
    );
  }

  async #appendToEach(topic: string, partitions: readonly number[]): Promise<string> {
    const value = `${LAST}${randomUUID()}`;
    const producer = this.#kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
    await producer.connect();
    await producer.send({ topic, acks: -1, messages: partitions.map((partition) => ({ partition, value })) });
    await producer.disconnect();
    return value;
  }

  async #withAdmin<T>(work: (admin: kafkajs.Admin) => Promise<T>): Promise<T> {
    const admin = this.#kafka.admin();
    await admin.connect();
    try {
      return await work(admin);
    } finally {
      await admin.disconnect();
    }
  }
}

/** Waits until `holds`, looking again and again. @throws {Error} naming `what` after the limit */
export const until = async (what: string, holds: () => boolean | Promise<boolean>): Promise<void> => {
  const giveUpAtMs = performance.now() + LIMIT.timeoutMs;
  while (!(await holds())) {
    if (performance.now() > giveUpAtMs) throw new Error(`Waited ${LIMIT.timeoutMs} ms in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

/** Waits until the broker ended the role's open transaction by itself. */
export const untilEnded = (stage: Stage, role: Role): Promise<void> =>
  until("the broker to end the transaction", async () => (await stage.transactionStateOf(role)) === "CompleteAbort");
