import type { ProducerPair } from "@krabka/core";
import type { ByteReader } from "./byte-reader.js";
import { ByteWriter } from "./byte-writer.js";

const COORDINATOR_OF_TRANSACTIONS = 1;

/** The broker that coordinates a transactional id (FindCoordinator v2). */
export const encodeFindCoordinator = (transactionalId: string): Buffer =>
  new ByteWriter().string(transactionalId).int8(COORDINATOR_OF_TRANSACTIONS).bytes;

export interface CoordinatorAnswer {
  readonly code: number;
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

export const decodeFindCoordinator = (from: ByteReader): CoordinatorAnswer => {
  from.int32();
  const code = from.int16();
  from.nullableString();
  return { code, nodeId: from.int32(), host: from.string(), port: from.int32() };
};

export interface InitProducerIdRequest {
  readonly transactionalId: string;
  readonly transactionTimeoutMs: number;
  /** The caller's own pair makes the request conditional (KIP-360); without it, it deposes whoever leads. */
  readonly own: ProducerPair | undefined;
}

export const encodeInitProducerId = ({ transactionalId, transactionTimeoutMs, own }: InitProducerIdRequest): Buffer =>
  new ByteWriter()
    .compactString(transactionalId)
    .int32(transactionTimeoutMs)
    .int64(own?.producerId ?? -1n)
    .int16(own?.epoch ?? -1)
    .noTags().bytes;

export interface InitProducerIdAnswer {
  readonly code: number;
  readonly pair: ProducerPair;
}

export const decodeInitProducerId = (from: ByteReader): InitProducerIdAnswer => {
  from.int32();
  return { code: from.int16(), pair: { producerId: from.int64(), epoch: from.int16() } };
};

export interface TopicPartitions {
  readonly topic: string;
  readonly partitions: readonly number[];
}

export const encodeAddPartitionsToTxn = (
  transactionalId: string,
  pair: ProducerPair,
  topics: readonly TopicPartitions[],
): Buffer => {
  const to = new ByteWriter().string(transactionalId).int64(pair.producerId).int16(pair.epoch);
  return to.array(topics, ({ topic, partitions }) => {
    to.string(topic).array(partitions, (partition) => to.int32(partition));
  }).bytes;
};

export interface PartitionCode {
  readonly topic: string;
  readonly partition: number;
  readonly code: number;
}

export const decodeAddPartitionsToTxn = (from: ByteReader): PartitionCode[] => {
  from.int32();
  return from
    .array(() => {
      const topic = from.string();
      return from.array(() => ({ topic, partition: from.int32(), code: from.int16() }));
    })
    .flat();
};

export const encodeEndTxn = (transactionalId: string, pair: ProducerPair, commit: boolean): Buffer =>
  new ByteWriter().string(transactionalId).int64(pair.producerId).int16(pair.epoch).boolean(commit).bytes;

export const decodeEndTxn = (from: ByteReader): number => {
  from.int32();
  return from.int16();
};

export const encodeDescribeTransactions = (transactionalId: string): Buffer => {
  const to = new ByteWriter();
  return to.compactArray([transactionalId], (id) => to.compactString(id)).noTags().bytes;
};

export interface TransactionDescription {
  readonly code: number;
  readonly state: string;
  readonly pair: ProducerPair;
}

export const decodeDescribeTransactions = (from: ByteReader): TransactionDescription[] => {
  from.int32();
  return from.compactArray(() => {
    const code = from.int16();
    from.compactString();
    const state = from.compactString();
    from.int32();
    from.int64();
    const pair = { producerId: from.int64(), epoch: from.int16() };
    from.compactArray(() => {
      from.compactString();
      from.compactArray(() => from.int32());
      from.tags();
    });
    from.tags();
    return { code, state, pair };
  });
};
