import type { AbortSignalLike, Clock } from "@krabka/core";
import type { TransactionCoordinator } from "./coordinator.js";
import type { FakeCall } from "./faults.js";
import type { PartitionLog } from "./partition-log.js";
import {
  type Answer,
  type ApiName,
  type Ask,
  KafkaCode,
  type PartitionRef,
  type Refusal,
  refuse,
  type TopicSettings,
} from "./protocol.js";
import type { Topics } from "./topics.js";

export interface HandlerParts {
  readonly clock: Clock;
  readonly topics: Topics;
  readonly coordinator: TransactionCoordinator;
  coordinatorOf(transactionalId: string): number;
  readonly autoCreate: TopicSettings | undefined;
}

type Handlers = { readonly [A in ApiName]: (ask: Ask<A>) => Answer<A> | Promise<Answer<A>> };

/** What the brokers do with a request that has arrived. */
export class RequestHandlers {
  readonly #parts: HandlerParts;

  constructor(parts: HandlerParts) {
    this.#parts = parts;
  }

  async execute<A extends ApiName>(call: FakeCall<A>, signal: AbortSignalLike | undefined): Promise<Answer<A>> {
    const { topics, coordinator } = this.#parts;
    const { broker } = call;
    const handlers: Handlers = {
      Metadata: ({ topic }) => this.#metadata(topic),
      CreateTopics: ({ topic, settings }) => {
        if (topics.find(topic) !== undefined) return refuse(KafkaCode.TOPIC_ALREADY_EXISTS);
        topics.create(topic, settings);
        return { ok: true };
      },
      DescribeConfigs: ({ topic }) => {
        const found = topics.find(topic);
        if (found === undefined) return refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
        return { ok: true, settings: found.settings };
      },
      FindCoordinator: ({ transactionalId }) => ({ ok: true, broker: this.#parts.coordinatorOf(transactionalId) }),
      InitProducerId: (ask) => this.#coordinated(broker, ask, () => coordinator.initProducerId(ask)),
      AddPartitionsToTxn: (ask) => this.#coordinated(broker, ask, () => this.#addPartitions(ask)),
      EndTxn: (ask) => this.#coordinated(broker, ask, () => coordinator.endTxn(ask)),
      DescribeTransactions: (ask) => this.#coordinated(broker, ask, () => coordinator.describe(ask.transactionalId)),
      Produce: (ask) => this.#led(broker, ask, (log) => this.#produce(ask, log)),
      Fetch: (ask) => this.#fetch(broker, ask, signal),
      ListOffsets: (ask) => this.#led(broker, ask, (log) => ({ ok: true, offset: offsetOf(log, ask) })),
      WriteTxnMarkers: (ask) =>
        this.#led(broker, ask, (log) => log.appendMarker(ask.producerId, ask.epoch, ask.commit)),
    };
    return await handlers[call.api](call.ask);
  }

  #metadata(topic: string): Answer<"Metadata"> {
    const { topics, autoCreate } = this.#parts;
    if (topics.find(topic) === undefined && autoCreate !== undefined) topics.create(topic, autoCreate);
    const found = topics.find(topic);
    if (found === undefined) return refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
    return { ok: true, leaders: found.partitions.map(({ leader }) => leader) };
  }

  #coordinated<T>(broker: number, ask: { readonly transactionalId: string }, run: () => T): T | Refusal {
    return this.#parts.coordinatorOf(ask.transactionalId) === broker ? run() : refuse(KafkaCode.NOT_COORDINATOR);
  }

  #led<T>(broker: number, ref: PartitionRef, run: (log: PartitionLog) => T): T | Refusal {
    const partition = this.#parts.topics.findPartition(ref);
    if (partition === undefined) return refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
    return partition.leader === broker ? run(partition.log) : refuse(KafkaCode.NOT_LEADER_OR_FOLLOWER);
  }

  #addPartitions(ask: Ask<"AddPartitionsToTxn">): Answer<"AddPartitionsToTxn"> {
    const { topics, coordinator } = this.#parts;
    const known = ask.partitions.every((ref) => topics.findPartition(ref) !== undefined);
    return known ? coordinator.addPartitions(ask) : refuse(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION);
  }

  #produce(ask: Ask<"Produce">, log: PartitionLog): Answer<"Produce"> {
    const { batch, transactionalId } = ask;
    if (batch.transactional && !log.hasOpenTransaction(batch.producerId)) {
      const { producerId, epoch } = batch;
      const identity = { transactionalId: transactionalId ?? "", producerId, epoch };
      const verified = this.#parts.coordinator.verify(identity, ask);
      if (!verified.ok) return verified;
    }
    return log.append(batch);
  }

  async #fetch(broker: number, ask: Ask<"Fetch">, signal: AbortSignalLike | undefined): Promise<Answer<"Fetch">> {
    const look = () => this.#led(broker, ask, (log) => fetched(log, ask));
    const first = look();
    if (!first.ok || first.batches.length > 0 || ask.maxWaitMs <= 0 || signal?.aborted) return first;
    const { clock, topics } = this.#parts;
    await new Promise<void>((resolve) => {
      const done = () => {
        stop();
        timer?.cancel();
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const stop = topics.partition(ask).log.onAppend(done);
      const timer = Number.isFinite(ask.maxWaitMs) ? clock.setTimer(ask.maxWaitMs, done) : undefined;
      signal?.addEventListener("abort", done, { once: true });
    });
    return look();
  }
}

const fetched = (log: PartitionLog, ask: Ask<"Fetch">): Answer<"Fetch"> => {
  const committed = ask.isolation === "read_committed";
  const batches = log.read(ask.offset, committed ? log.lastStableOffset : log.highWatermark);
  if (batches === undefined) return refuse(KafkaCode.OFFSET_OUT_OF_RANGE);
  return {
    ok: true,
    batches,
    highWatermark: log.highWatermark,
    lastStableOffset: log.lastStableOffset,
    logStartOffset: log.startOffset,
    aborted: committed ? log.abortedFrom(ask.offset) : [],
  };
};

const offsetOf = (log: PartitionLog, { at, isolation }: Ask<"ListOffsets">): bigint => {
  if (at === "earliest") return log.startOffset;
  return isolation === "read_committed" ? log.lastStableOffset : log.highWatermark;
};
