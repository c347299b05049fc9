import { randomUUID } from "node:crypto";
import { CoordinationClient, type FencingToken, MemberId, Role } from "@krabka/client";
import { type Clock, encodeEntry, FenceGate, partitionForRole } from "@krabka/core";
import { ForeignMember } from "@krabka/tooling-foreign-member";
import { type RunningFaultProxy, startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { Kafka, logLevel, Partitioners } from "kafkajs";
import { expect } from "vitest";

export type LeaseRecords = "append" | "transaction";

export const LEASE_MS = 2_000;
const RENEW_MS = 500;
const STAGGER_MS = 300;
const TIMINGS = { leaseMs: LEASE_MS, renewMs: RENEW_MS, staggerMs: STAGGER_MS };

/** A role that Krabka's members and members of another implementation compete for, and an observer who sees all leaders. */
export class SharedRole implements AsyncDisposable {
  readonly role = Role.of(`shared-${randomUUID()}`);
  readonly coordinationTopic = `state-${randomUUID().slice(0, 8)}`;
  /** For guarded writes; one partition. */
  readonly dataTopic = `data-${randomUUID().slice(0, 8)}`;
  readonly kafka: Kafka;
  /** Krabka's members, and nobody else, come through it. */
  readonly proxy: RunningFaultProxy;
  /** Of all leaders that the observer saw, in that order, without repeats. */
  readonly tokens: FencingToken[] = [];
  readonly #bootstrap: string;
  readonly #leaving = new AbortController();
  readonly #clients: CoordinationClient[] = [];
  readonly #foreign: ForeignMember[] = [];
  #observed: Promise<void> = Promise.resolve();

  private constructor(bootstrap: string, proxy: RunningFaultProxy) {
    this.#bootstrap = bootstrap;
    this.proxy = proxy;
    this.kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });
  }

  static async open(bootstrap: string): Promise<SharedRole> {
    const shared = new SharedRole(bootstrap, await startFaultProxy({ bootstrap }));
    const admin = shared.kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: shared.dataTopic, numPartitions: 1 }], waitForLeaders: true });
    await admin.disconnect();
    const observer = shared.member("append");
    await observer.describe(shared.role);
    shared.#observed = shared.#observe(observer);
    return shared;
  }

  /** A client of Krabka with a transport of its own. */
  member(leaseRecords: LeaseRecords, options: { clock?: Clock } = {}): CoordinationClient {
    const kafka = { brokers: this.proxy.bootstrap.split(","), logLevel: logLevel.NOTHING };
    const transport = new KafkaJsTransport({
      kafka,
      topic: this.coordinationTopic,
      leaseRecords,
      clock: options.clock,
    });
    const client = new CoordinationClient(transport, { ...TIMINGS, ...options });
    this.#clients.push(client);
    return client;
  }

  /** A member of another implementation, or without a name a strict reader. */
  async foreign(member?: string, options: { renewMs?: number } = {}): Promise<ForeignMember> {
    const foreign = await ForeignMember.start({
      bootstrap: this.#bootstrap,
      topic: this.coordinationTopic,
      role: this.role,
      ...(member !== undefined && { member }),
      ...TIMINGS,
      ...options,
    });
    this.#foreign.push(foreign);
    return foreign;
  }

  /** Leaves an expired lease and the registration of a member that is gone, under a producer id that nobody has. */
  async appendForeignLease(name: string): Promise<void> {
    const { role } = this;
    const member = MemberId.of(name);
    const times = { registeredAtMs: 1n, grantedAtMs: 1n, deadlineMs: 2n };
    const entry = { role, member, attributes: {}, ...times };
    const pair = { producerId: 987_654_321n, epoch: 7 };
    const producer = this.kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
    await producer.connect();
    await producer.send({
      topic: this.coordinationTopic,
      messages: [
        encodeEntry({ kind: "registration", ...entry }),
        encodeEntry({ kind: "lease", pair, term: undefined, ...entry }),
      ].map(({ key, value }) => ({
        partition: partitionForRole(role),
        key: Buffer.from(key as Uint8Array),
        value: Buffer.from(value as Uint8Array),
      })),
    });
    await producer.disconnect();
  }

  /** Resolves once a member stands in the roster. */
  async registered(name: string): Promise<void> {
    const member = MemberId.of(name);
    for await (const { roster } of this.#observer.observe(this.role)) {
      if (roster.some((entry) => entry.member === member)) return;
    }
  }

  /** Resolves once the observer has seen the leader of this token, or a later one. */
  async hasSeen(token: FencingToken): Promise<void> {
    for await (const { leader } of this.#observer.observe(this.role)) {
      if (leader !== undefined && leader.token.compareTo(token) >= 0) return;
    }
  }

  /** A resource that is shown the tokens in the order of the leaders admits each and then refuses all before it. */
  async expectOrdered(): Promise<void> {
    const gate = FenceGate.inMemory();
    for (const [index, token] of this.tokens.entries()) {
      await gate.admit(token);
      for (const older of this.tokens.slice(0, index)) expect(gate.wouldAdmit(older), `${older}, ${token}`).toBe(false);
    }
  }

  /** @throws Error when a strict reader met a record that the format does not allow */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#leaving.abort();
    await this.#observed;
    this.proxy.reset();
    await Promise.all(this.#clients.map((client) => client.close()));
    const ends = await Promise.allSettled(this.#foreign.map((foreign) => foreign.close()));
    await this.proxy.close();
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  get #observer(): CoordinationClient {
    return this.#clients[0] as CoordinationClient;
  }

  async #observe(observer: CoordinationClient): Promise<void> {
    for await (const { leader } of observer.observe(this.role, { signal: this.#leaving.signal })) {
      if (leader !== undefined && this.tokens.at(-1)?.equals(leader.token) !== true) this.tokens.push(leader.token);
    }
  }
}
