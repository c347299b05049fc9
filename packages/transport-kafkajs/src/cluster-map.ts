import { Backoff, type Clock, Deadline, KrabkaError, type Role } from "@krabka/core";
import { errorOf, meaningOf, NONE, onRole, onTopic, UNKNOWN_TOPIC_OR_PARTITION } from "./error-codes.js";
import { FIND_COORDINATOR, METADATA } from "./wire/api.js";
import type { ByteReader } from "./wire/byte-reader.js";
import { type ClusterMetadata, decodeMetadata, encodeMetadata, type TopicMetadata } from "./wire/cluster-requests.js";
import { decodeFindCoordinator, encodeFindCoordinator } from "./wire/transaction-requests.js";
import { type Lane, UnansweredError, type Wire, type WireRequest } from "./wire-connection.js";

/** Who leads a partition, as far as is known. */
export interface Leader {
  readonly nodeId: number;
  readonly leaderEpoch: number;
}

/** Partitions may be added to a topic, and a key belongs where the newest count puts it. */
const TOPIC_AGE_MS = 300_000;

/** Leaders and coordinators: looked up once, kept until an answer says that they moved. */
export class ClusterMap {
  readonly #wire: Wire;
  readonly #clock: Clock;
  readonly #requestTimeoutMs: number;
  readonly #topics = new Map<string, TopicMetadata & { readonly knownAtMs: number }>();
  readonly #coordinators = new Map<Role, number>();
  readonly #refreshing = new Map<string, Promise<ClusterMetadata>>();

  constructor(wire: Wire, clock: Clock, requestTimeoutMs: number) {
    this.#wire = wire;
    this.#clock = clock;
    this.#requestTimeoutMs = requestTimeoutMs;
  }

  get clock(): Clock {
    return this.#clock;
  }

  get requestTimeoutMs(): number {
    return this.#requestTimeoutMs;
  }

  deadline(options: ConstructorParameters<typeof Deadline>[1]): Deadline {
    return new Deadline(this.#clock, options, this.#requestTimeoutMs);
  }

  /**
   * Sends once, and not after the call has ended. The answer of a call that ends earlier is dropped when it comes.
   *
   * @throws as `Wire.request`
   */
  ask(
    nodeId: number,
    lane: Lane,
    request: Omit<WireRequest, "timeoutMs">,
    deadline: Deadline,
    timeoutMs = this.#requestTimeoutMs,
  ): Promise<ByteReader> {
    const encode = (): Uint8Array => {
      deadline.throwIfEnded();
      return request.encode();
    };
    return deadline.race(this.#wire.request(nodeId, lane, { api: request.api, encode, timeoutMs }));
  }

  /**
   * What is known of a topic, asking when nothing is.
   *
   * @throws {KrabkaError} `UNKNOWN_TOPIC`, `UNAUTHORIZED`, `UNREACHABLE`, `TIMEOUT`, `ABORTED`
   */
  async topic(topic: string, deadline: Deadline): Promise<TopicMetadata> {
    const known = this.#topics.get(topic);
    if (known !== undefined && this.#clock.monotonicMs() - known.knownAtMs < TOPIC_AGE_MS) return known;
    const found = await this.refresh(topic, deadline);
    if (found === undefined) throw new KrabkaError("UNKNOWN_TOPIC", `Topic ${JSON.stringify(topic)} does not exist`);
    return found;
  }

  /** The leader of a partition; a partition without one is asked for again until the call ends. */
  async leaderOf(topic: string, partition: number, deadline: Deadline): Promise<Leader> {
    const backoff = new Backoff(5, 200);
    let found = await this.topic(topic, deadline);
    for (;;) {
      const entry = found.partitions.find((candidate) => candidate.partition === partition);
      if (entry !== undefined && entry.leader >= 0) return { nodeId: entry.leader, leaderEpoch: entry.leaderEpoch };
      if (entry === undefined && found.partitions.length > 0 && partition >= found.partitions.length) {
        throw new KrabkaError(
          "INVALID_ARGUMENT",
          `Topic ${JSON.stringify(topic)} has ${found.partitions.length} partitions; partition ${partition} was given`,
        );
      }
      await deadline.pause(backoff.next());
      this.#topics.delete(topic);
      found = await this.topic(topic, deadline);
    }
  }

  /** Drops what is known of a topic, so that the next question goes to the cluster. */
  forgetTopic(topic: string): void {
    this.#topics.delete(topic);
  }

  /** Asks the cluster for a topic now; undefined when it does not exist. */
  async refresh(topic: string, deadline: Deadline): Promise<TopicMetadata | undefined> {
    const backoff = new Backoff(5, 200);
    for (;;) {
      const { topics } = await this.metadata(topic, deadline);
      const found = topics.find((candidate) => candidate.topic === topic);
      const code = found?.code ?? UNKNOWN_TOPIC_OR_PARTITION;
      if (found !== undefined && code === NONE) {
        this.#topics.set(topic, { ...found, knownAtMs: this.#clock.monotonicMs() });
        return found;
      }
      this.#topics.delete(topic);
      if (code === UNKNOWN_TOPIC_OR_PARTITION) return undefined;
      if (meaningOf(code) !== "moved" && meaningOf(code) !== "busy") {
        throw errorOf(code, `Looking up topic ${JSON.stringify(topic)}`, { right: onTopic("Describe", topic) });
      }
      await deadline.pause(backoff.next());
    }
  }

  /** Brokers and one topic, from any broker that answers. */
  async metadata(topic: string, deadline: Deadline): Promise<ClusterMetadata> {
    // Callers of the same moment share one question.
    let asking = this.#refreshing.get(topic);
    if (asking === undefined) {
      asking = this.#askMetadata(topic).finally(() => this.#refreshing.delete(topic));
      asking.catch(() => undefined);
      this.#refreshing.set(topic, asking);
    }
    const backoff = new Backoff(10, 250);
    for (;;) {
      try {
        return await deadline.race(asking);
      } catch (error) {
        if (!(error instanceof UnansweredError)) throw error;
        await this.#pauseOrUnreachable(deadline, backoff, error);
        asking = this.#askMetadata(topic);
      }
    }
  }

  /** The broker that coordinates a role's transactions. */
  async coordinatorOf(role: Role, deadline: Deadline): Promise<number> {
    const known = this.#coordinators.get(role);
    if (known !== undefined) return known;
    const backoff = new Backoff(5, 200);
    for (;;) {
      try {
        const request = { api: FIND_COORDINATOR, encode: () => encodeFindCoordinator(role) };
        const timeoutMs = this.#requestTimeoutMs;
        const answer = decodeFindCoordinator(await deadline.race(this.#wire.requestAny({ ...request, timeoutMs })));
        if (answer.code === NONE) {
          await this.#makeKnown(answer.nodeId, deadline);
          this.#coordinators.set(role, answer.nodeId);
          return answer.nodeId;
        }
        if (meaningOf(answer.code) === "refused" || meaningOf(answer.code) === "unknown") {
          throw errorOf(answer.code, `Looking up the coordinator of role ${JSON.stringify(role)}`, {
            role,
            right: `${onRole("Write", role)} (to observe: Describe)`,
          });
        }
        await deadline.pause(backoff.next());
      } catch (error) {
        if (!(error instanceof UnansweredError)) throw error;
        await this.#pauseOrUnreachable(deadline, backoff, error);
      }
    }
  }

  forgetCoordinator(role: Role): void {
    this.#coordinators.delete(role);
  }

  readonly #knownNodes = new Set<number>();

  async #makeKnown(nodeId: number, deadline: Deadline): Promise<void> {
    if (!this.#knownNodes.has(nodeId)) await this.metadata("", deadline);
  }

  async #askMetadata(topic: string): Promise<ClusterMetadata> {
    const encode = (): Buffer => encodeMetadata(topic === "" ? [] : [topic]);
    const answer = await this.#wire.requestAny({ api: METADATA, encode, timeoutMs: this.#requestTimeoutMs });
    const metadata = decodeMetadata(answer);
    this.#wire.learn(metadata.brokers);
    this.#knownNodes.clear();
    for (const { nodeId } of metadata.brokers) this.#knownNodes.add(nodeId);
    return metadata;
  }

  async #pauseOrUnreachable(deadline: Deadline, backoff: Backoff, error: UnansweredError): Promise<void> {
    const delayMs = backoff.next();
    if (deadline.remainingMs > delayMs) return deadline.pause(delayMs);
    const ended = deadline.ended;
    if (ended?.code === "ABORTED") throw ended;
    throw new KrabkaError("UNREACHABLE", `No broker answered; tried ${this.#wire.tried.join(", ")}`, { cause: error });
  }
}
