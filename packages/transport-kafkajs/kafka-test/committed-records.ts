import type { ReadRecord, TopicPartition } from "@krabka/core";
import type { ClusterMap } from "../src/cluster-map.js";
import { decompress } from "../src/decompress.js";
import { FETCH, LIST_OFFSETS } from "../src/wire/api.js";
import {
  decodeFetch,
  decodeListOffsets,
  encodeFetch,
  encodeListOffsets,
  type FetchedPartition,
} from "../src/wire/log-requests.js";
import { decodeBatches, type FetchedBatch } from "../src/wire/record-batch.js";

/** Everything that a new committed reader gets to see in a partition now. */
export const committedRecords = async (map: ClusterMap, target: TopicPartition): Promise<readonly ReadRecord[]> => {
  const deadline = map.deadline(undefined);
  const { nodeId } = await map.leaderOf(target.topic, target.partition, deadline);
  const encode = () => encodeListOffsets(target.topic, target.partition, -1, "start");
  const start = await map.ask(nodeId, "write", { api: LIST_OFFSETS, encode }, deadline);
  const records: ReadRecord[] = [];
  let position = decodeListOffsets(start)[0]?.offset ?? 0n;
  for (;;) {
    const { fetched, batches } = await fetchCommitted(map, nodeId, target, position);
    records.push(...withoutAborted(fetched, batches).filter(({ offset }) => offset >= position));
    const last = batches.at(-1);
    if (last === undefined || last.lastOffset < position) return records;
    position = last.lastOffset + 1n;
  }
};

const fetchCommitted = async (
  map: ClusterMap,
  nodeId: number,
  { topic, partition }: TopicPartition,
  fetchOffset: bigint,
) => {
  const partitions = [{ partition, leaderEpoch: -1, fetchOffset, lastFetchedEpoch: -1 }];
  const encode = () => encodeFetch({ topic, partitions, maxWaitMs: 0, committedOnly: true, maxBytes: 1 << 24 });
  const answer = await map.ask(nodeId, "write", { api: FETCH, encode }, map.deadline(undefined));
  const fetched = decodeFetch(answer).partitions[0];
  if (fetched === undefined || fetched.code !== 0) throw new Error(`Fetch was answered with ${fetched?.code}`);
  return { fetched, batches: await decodeBatches(fetched.records, decompress) };
};

/** What is left of a committed read without the transactions that the broker lists as aborted. */
const withoutAborted = (fetched: FetchedPartition, batches: readonly FetchedBatch[]): ReadRecord[] => {
  const records: ReadRecord[] = [];
  for (const [index, batch] of batches.entries()) {
    if (batch.content.kind !== "records") continue;
    const aborted = fetched.aborted.some(
      ({ producerId, firstOffset }) =>
        producerId === batch.producerId &&
        firstOffset <= batch.baseOffset &&
        batches.slice(0, index).every((earlier) => !endsTransaction(earlier, producerId, firstOffset)),
    );
    if (!(batch.transactional && aborted)) records.push(...batch.content.records);
  }
  return records;
};

const endsTransaction = (batch: FetchedBatch, producerId: bigint, firstOffset: bigint): boolean =>
  batch.content.kind === "marker" && batch.producerId === producerId && batch.baseOffset > firstOffset;
