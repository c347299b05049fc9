import type { Clock, Timer } from "@krabka/core";
import {
  type Answer,
  type Ask,
  KafkaCode,
  NO_EPOCH,
  NO_PRODUCER_ID,
  type PartitionRef,
  type Refusal,
  refuse,
  type TransactionAsk,
  type TransactionState,
} from "./protocol.js";

/** Kafka hands out epochs up to 32766; 32767 is left for fencing the last of them (`TransactionMetadata`). */
const LAST_EPOCH = 32766;
const isExhausted = (epoch: number): boolean => epoch >= LAST_EPOCH;

interface Transactional {
  readonly id: string;
  producerId: bigint;
  previousProducerId: bigint;
  epoch: number;
  /** The epoch before a conditional bump: a repeated request is recognised by it. */
  previousEpoch: number;
  state: TransactionState;
  timeoutMs: number;
  updatedAtMs: number;
  readonly partitions: Map<string, PartitionRef>;
  timer: Timer | undefined;
}

/** What the coordinator needs of the cluster around it. */
export interface CoordinatorHost {
  readonly clock: Clock;
  /** From the block of the broker that coordinates the transactional id at present. */
  nextProducerId(transactionalId: string): bigint;
  /** Writes the markers of one transaction; settles when all are written. */
  writeMarkers(ask: TransactionAsk & { readonly commit: boolean }, partitions: readonly PartitionRef[]): Promise<void>;
  readonly transactionalIdExpirationMs: number;
  readonly maxTransactionTimeoutMs: number;
}

const partitionKey = ({ topic, partition }: PartitionRef): string => `${topic}/${partition}`;

/**
 * The state machine of transactional ids, after Kafka's `TransactionCoordinator` as it serves clients whose EndTxn is
 * below version 5 (the epoch stays over commits).
 */
export class TransactionCoordinator {
  readonly #host: CoordinatorHost;
  readonly #ids = new Map<string, Transactional>();

  constructor(host: CoordinatorHost) {
    this.#host = host;
  }

  initProducerId(ask: Ask<"InitProducerId">): Answer<"InitProducerId"> {
    const { transactionalId, transactionTimeoutMs, expected } = ask;
    if (!(transactionTimeoutMs > 0 && transactionTimeoutMs <= this.#host.maxTransactionTimeoutMs)) {
      return refuse(KafkaCode.INVALID_TRANSACTION_TIMEOUT);
    }
    const known = this.#get(transactionalId) ?? this.#create(transactionalId, transactionTimeoutMs);
    if (expected !== undefined && !this.#mayExpect(known, expected)) return refuse(KafkaCode.PRODUCER_FENCED);
    switch (known.state) {
      case "PrepareAbort":
      case "PrepareCommit":
        return refuse(KafkaCode.CONCURRENT_TRANSACTIONS);
      case "Ongoing":
        // Kafka does not compare the expected epoch here (4.1, prepareInitProducerIdTransit): with the right producer id
        // even a stale epoch aborts the transaction that is open. The epoch of this fence is given to nobody.
        this.#fence(known);
        return refuse(KafkaCode.CONCURRENT_TRANSACTIONS);
      default:
        return this.#bump(known, transactionTimeoutMs, expected?.epoch);
    }
  }

  addPartitions(ask: Ask<"AddPartitionsToTxn">): Answer<"AddPartitionsToTxn"> {
    const checked = this.#checked(ask);
    if (!checked.ok) return checked;
    const { known } = checked;
    if (known.state === "PrepareCommit" || known.state === "PrepareAbort") {
      return refuse(KafkaCode.CONCURRENT_TRANSACTIONS);
    }
    for (const partition of ask.partitions) known.partitions.set(partitionKey(partition), partition);
    if (known.state !== "Ongoing") {
      this.#move(known, "Ongoing");
      known.timer = this.#host.clock.setTimer(known.timeoutMs, () => this.#fence(known));
    }
    return { ok: true };
  }

  endTxn(ask: Ask<"EndTxn">): Answer<"EndTxn"> {
    const checked = this.#checked(ask);
    if (!checked.ok) return checked;
    const { known } = checked;
    switch (known.state) {
      case "Ongoing":
        this.#end(known, ask.commit);
        return { ok: true };
      case "PrepareCommit":
      case "PrepareAbort":
        return (known.state === "PrepareCommit") === ask.commit
          ? refuse(KafkaCode.CONCURRENT_TRANSACTIONS)
          : refuse(KafkaCode.INVALID_TXN_STATE);
      case "CompleteCommit":
      case "CompleteAbort":
        return (known.state === "CompleteCommit") === ask.commit ? { ok: true } : refuse(KafkaCode.INVALID_TXN_STATE);
      case "Empty":
        return refuse(KafkaCode.INVALID_TXN_STATE);
    }
  }

  /** What a partition leader asks before the first transactional batch of a transaction (KIP-890, part 1). */
  verify(ask: TransactionAsk, partition: PartitionRef): { readonly ok: true } | Refusal {
    const checked = this.#checked(ask);
    if (!checked.ok) {
      return checked.code === KafkaCode.PRODUCER_FENCED ? refuse(KafkaCode.INVALID_PRODUCER_EPOCH) : checked;
    }
    const { state, partitions } = checked.known;
    return state === "Ongoing" && partitions.has(partitionKey(partition))
      ? { ok: true }
      : refuse(KafkaCode.INVALID_TXN_STATE);
  }

  describe(transactionalId: string): Answer<"DescribeTransactions"> {
    const known = this.#get(transactionalId);
    if (known === undefined) return refuse(KafkaCode.TRANSACTIONAL_ID_NOT_FOUND);
    return { ok: true, producerId: known.producerId, epoch: known.epoch, state: known.state };
  }

  /** Sets the epoch of an id that has no transaction open, for tests near the end of the range. */
  setEpoch(transactionalId: string, epoch: number): void {
    const known = this.#get(transactionalId);
    if (known === undefined || known.state === "Ongoing") {
      throw new Error(`${JSON.stringify(transactionalId)} must be minted and idle for its epoch to be set`);
    }
    known.epoch = epoch;
    known.previousEpoch = NO_EPOCH;
  }

  /** Forgets an id, as Kafka does after transactional.id.expiration.ms without a transaction. */
  expire(transactionalId: string): void {
    this.#ids.get(transactionalId)?.timer?.cancel();
    this.#ids.delete(transactionalId);
  }

  close(): void {
    for (const { timer } of this.#ids.values()) timer?.cancel();
  }

  #get(transactionalId: string): Transactional | undefined {
    const known = this.#ids.get(transactionalId);
    if (known === undefined) return undefined;
    const idle = known.state === "Empty" || known.state === "CompleteCommit" || known.state === "CompleteAbort";
    if (!idle || this.#host.clock.wallMs() - known.updatedAtMs < this.#host.transactionalIdExpirationMs) return known;
    this.expire(transactionalId);
    return undefined;
  }

  #create(id: string, timeoutMs: number): Transactional {
    const created: Transactional = {
      id,
      producerId: this.#host.nextProducerId(id),
      previousProducerId: NO_PRODUCER_ID,
      epoch: NO_EPOCH,
      previousEpoch: NO_EPOCH,
      state: "Empty",
      timeoutMs,
      updatedAtMs: this.#host.clock.wallMs(),
      partitions: new Map(),
      timer: undefined,
    };
    this.#ids.set(id, created);
    return created;
  }

  #mayExpect(known: Transactional, expected: { readonly producerId: bigint; readonly epoch: number }): boolean {
    return (
      known.epoch === NO_EPOCH ||
      expected.producerId === known.producerId ||
      (expected.producerId === known.previousProducerId && isExhausted(expected.epoch))
    );
  }

  #bump(known: Transactional, timeoutMs: number, expectedEpoch: number | undefined): Answer<"InitProducerId"> {
    if (isExhausted(known.epoch) && (expectedEpoch === undefined || expectedEpoch === known.epoch)) {
      known.previousProducerId = known.producerId;
      known.previousEpoch = expectedEpoch === undefined ? NO_EPOCH : known.epoch;
      known.producerId = this.#host.nextProducerId(known.id);
      known.epoch = 0;
    } else if (expectedEpoch === undefined || known.epoch === NO_EPOCH || expectedEpoch === known.epoch) {
      known.previousEpoch = expectedEpoch === undefined ? NO_EPOCH : known.epoch;
      known.previousProducerId = known.producerId;
      known.epoch += 1;
    } else if (expectedEpoch !== known.previousEpoch) {
      return refuse(KafkaCode.PRODUCER_FENCED);
    }
    known.timeoutMs = timeoutMs;
    known.partitions.clear();
    this.#move(known, "Empty");
    return { ok: true, producerId: known.producerId, epoch: known.epoch };
  }

  #checked(ask: TransactionAsk): { readonly ok: true; readonly known: Transactional } | Refusal {
    const known = this.#get(ask.transactionalId);
    if (known === undefined || known.producerId !== ask.producerId)
      return refuse(KafkaCode.INVALID_PRODUCER_ID_MAPPING);
    if (known.epoch !== ask.epoch) return refuse(KafkaCode.PRODUCER_FENCED);
    return { ok: true, known };
  }

  /** Aborts the open transaction under a bumped epoch: by a rival's mint, or by the broker's timeout. */
  #fence(known: Transactional): void {
    known.epoch += 1;
    known.previousEpoch = NO_EPOCH;
    this.#end(known, false);
  }

  #end(known: Transactional, commit: boolean): void {
    known.timer?.cancel();
    known.timer = undefined;
    this.#move(known, commit ? "PrepareCommit" : "PrepareAbort");
    const { id: transactionalId, producerId, epoch } = known;
    void this.#host
      .writeMarkers({ transactionalId, producerId, epoch, commit }, [...known.partitions.values()])
      .then(() => {
        known.partitions.clear();
        this.#move(known, commit ? "CompleteCommit" : "CompleteAbort");
      });
  }

  #move(known: Transactional, state: TransactionState): void {
    known.state = state;
    known.updatedAtMs = this.#host.clock.wallMs();
  }
}
