import type { ByteReader } from "./byte-reader.js";
import { ByteWriter } from "./byte-writer.js";

/** One batch for one partition. */
export interface ProducePartition {
  readonly topic: string;
  readonly partition: number;
  readonly batch: Uint8Array;
}

/** Acknowledged by all in-sync replicas (Produce v8). */
export const encodeProduce = (
  transactionalId: string | null,
  timeoutMs: number,
  batches: readonly ProducePartition[],
): Buffer => {
  const size = batches.reduce((sum, { batch }) => sum + batch.length, 256);
  const to = new ByteWriter(size).nullableString(transactionalId).int16(-1).int32(timeoutMs);
  const topics = new Map<string, ProducePartition[]>();
  for (const entry of batches) {
    const known = topics.get(entry.topic);
    if (known === undefined) topics.set(entry.topic, [entry]);
    else known.push(entry);
  }
  return to.array([...topics], ([topic, partitions]) => {
    to.string(topic).array(partitions, ({ partition, batch }) => {
      to.int32(partition).bytesField(batch);
    });
  }).bytes;
};

export interface ProduceAnswer {
  readonly topic: string;
  readonly partition: number;
  readonly code: number;
  readonly baseOffset: bigint;
  /** -1 where the topic does not stamp records itself. */
  readonly logAppendTimeMs: number;
  readonly message: string | null;
}

export const decodeProduce = (from: ByteReader): ProduceAnswer[] =>
  from
    .array(() => {
      const topic = from.string();
      return from.array(() => {
        const partition = from.int32();
        const code = from.int16();
        const baseOffset = from.int64();
        const logAppendTimeMs = Number(from.int64());
        from.int64();
        from.array(() => {
          from.int32();
          from.nullableString();
        });
        return { topic, partition, code, baseOffset, logAppendTimeMs, message: from.nullableString() };
      });
    })
    .flat();

interface FetchPartition {
  readonly partition: number;
  readonly leaderEpoch: number;
  readonly fetchOffset: bigint;
  /** Epoch of the last batch that was read, or -1; the leader answers with the divergence if its log differs. */
  readonly lastFetchedEpoch: number;
}

export interface FetchRequest {
  readonly topic: string;
  readonly partitions: readonly FetchPartition[];
  readonly maxWaitMs: number;
  readonly committedOnly: boolean;
  readonly maxBytes: number;
}

export const encodeFetch = (request: FetchRequest): Buffer => {
  const to = new ByteWriter(512)
    .int32(-1)
    .int32(request.maxWaitMs)
    .int32(1)
    .int32(request.maxBytes)
    .int8(request.committedOnly ? 1 : 0)
    .int32(0)
    .int32(-1);
  return to
    .compactArray([request.topic], (topic) => {
      to.compactString(topic)
        .compactArray(request.partitions, (partition) => {
          to.int32(partition.partition)
            .int32(partition.leaderEpoch)
            .int64(partition.fetchOffset)
            .int32(partition.lastFetchedEpoch)
            .int64(-1n)
            .int32(request.maxBytes)
            .noTags();
        })
        .noTags();
    })
    .compactArray([], () => undefined)
    .compactString("")
    .noTags().bytes;
};

export interface FetchedPartition {
  readonly partition: number;
  readonly code: number;
  readonly highWatermark: bigint;
  readonly lastStableOffset: bigint;
  readonly logStartOffset: bigint;
  /** Aborted transactions in the range, by producer; only in answers to committed reads. */
  readonly aborted: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[];
  /** The leader's log has another history from about here on. */
  readonly diverges: boolean;
  readonly records: Buffer;
}

export interface FetchAnswer {
  readonly code: number;
  readonly partitions: readonly FetchedPartition[];
}

const EMPTY = Buffer.alloc(0);
const DIVERGING_EPOCH_TAG = 0;

export const decodeFetch = (from: ByteReader): FetchAnswer => {
  from.int32();
  const code = from.int16();
  from.int32();
  const partitions = from.compactArray(() => {
    from.compactString();
    const fetched = from.compactArray(() => {
      const head = {
        partition: from.int32(),
        code: from.int16(),
        highWatermark: from.int64(),
        lastStableOffset: from.int64(),
        logStartOffset: from.int64(),
      };
      const aborted = from.compactArray(() => {
        const entry = { producerId: from.int64(), firstOffset: from.int64() };
        from.tags();
        return entry;
      });
      from.int32();
      const records = from.compactNullableBytes() ?? EMPTY;
      let diverges = false;
      from.tags((tag) => {
        if (tag === DIVERGING_EPOCH_TAG) diverges = true;
      });
      return { ...head, aborted, records, diverges };
    });
    from.tags();
    return fetched;
  });
  return { code, partitions: partitions.flat() };
};

/** The end of a log that a replica has acknowledged everywhere (its high watermark), or its start. */
export type LogEnd = "start" | "end";

export const encodeListOffsets = (topic: string, partition: number, leaderEpoch: number, end: LogEnd): Buffer => {
  const to = new ByteWriter().int32(-1).int8(0);
  return to.array([partition], () => {
    to.string(topic).array([partition], (index) => {
      to.int32(index)
        .int32(leaderEpoch)
        .int64(end === "end" ? -1n : -2n);
    });
  }).bytes;
};

export interface ListOffsetsAnswer {
  readonly code: number;
  readonly offset: bigint;
}

export const decodeListOffsets = (from: ByteReader): ListOffsetsAnswer[] => {
  from.int32();
  return from
    .array(() => {
      from.string();
      return from.array(() => {
        from.int32();
        const code = from.int16();
        from.int64();
        const offset = from.int64();
        from.int32();
        return { code, offset };
      });
    })
    .flat();
};
