import {
  type AbortSignalLike,
  type CallOptions,
  type Deadline,
  KrabkaError,
  MAX_TIMER_MS,
  type ReadRecord,
  type TopicPartition,
} from "@krabka/core";
import { LocalError } from "../../errors.js";
import type { StoredRecord } from "../broker/partition-log.js";
import { decodeRecord } from "../broker/record-bytes.js";
import type { BrokerClient } from "../link/broker-client.js";
import type { QueryResult } from "../link/port.js";

/** A record as a consumer gets it. */
export interface TopicRecord extends ReadRecord, TopicPartition {
  /** What its writer said. */
  readonly timestampMs: number;
  /** The log's own clock when it was appended. */
  readonly appendedAtMs: number;
}

export type TailStart = bigint | "earliest" | "latest";

type LimitOf = (options: CallOptions) => Deadline;
type Fetched = Extract<QueryResult, { kind: "slice" }>;

/** What is there now. */
export async function* readAll(
  client: BrokerClient,
  target: TopicPartition,
  options: CallOptions & { readonly from?: bigint | "earliest" | undefined },
  limitOf: LimitOf,
): AsyncGenerator<TopicRecord, void, void> {
  let from: bigint | "earliest" = options.from ?? "earliest";
  let end: bigint | undefined;
  for (;;) {
    const fetched = await fetch(client, target, from, false, limitOf(options));
    end ??= fetched.end;
    for (const record of fetched.slice.records) {
      if (record.offset >= end) return;
      yield decode(target, record);
    }
    if (fetched.slice.next >= end) return;
    from = fetched.slice.next;
  }
}

/** What is there and what comes. A page is asked for when the one before it was taken, so a slow consumer holds back its reader. */
export async function* readTail(
  client: BrokerClient,
  target: TopicPartition,
  options: { readonly from?: TailStart | undefined; readonly signal?: AbortSignalLike | undefined },
  limitOf: LimitOf,
): AsyncGenerator<TopicRecord, void, void> {
  const { signal } = options;
  let from: TailStart = options.from ?? "earliest";
  // "latest" is the end as it is now, not as it will be when the owner is back.
  if (from === "latest") from = (await fetch(client, target, from, false, limitOf({ signal }))).end;
  for (;;) {
    const { slice } = await fetch(client, target, from, true, limitOf({ signal, timeoutMs: MAX_TIMER_MS }));
    for (const record of slice.records) yield decode(target, record);
    from = slice.next;
  }
}

const fetch = async (
  client: BrokerClient,
  target: TopicPartition,
  from: TailStart,
  waits: boolean,
  limit: Deadline,
): Promise<Fetched> => {
  const result = await client.query({ kind: "fetch", target, from, waits }, limit);
  const name = `${target.topic}/${target.partition}`;
  switch (result.kind) {
    case "slice":
      return result;
    case "unknown-topic":
      throw new KrabkaError("UNKNOWN_TOPIC", result.message);
    case "gap":
      throw gapError(name, from, result);
    default:
      throw new KrabkaError("UNREACHABLE", `The broker answered ${result.kind} to a fetch`);
  }
};

/** Offsets only grow, so one beyond the end is from somewhere else. */
const gapError = (
  name: string,
  from: TailStart,
  { start, end }: Extract<QueryResult, { kind: "gap" }>,
): KrabkaError => {
  const message = `Partition ${name} keeps the offsets ${start} to ${end}, the end not included; got ${from}`;
  const isBeyond = typeof from === "bigint" && from > end;
  const cause = new LocalError(isBeyond ? "OTHER_HISTORY" : "TOO_OLD", message);
  return new KrabkaError("INVALID_ARGUMENT", message, { cause });
};

const decode = ({ topic, partition }: TopicPartition, { offset, atMs, bytes }: StoredRecord): TopicRecord => {
  try {
    return { ...decodeRecord(bytes), topic, partition, offset, appendedAtMs: atMs };
  } catch (cause) {
    throw new KrabkaError(
      "UNREACHABLE",
      `The broker gave ${topic}/${partition}@${offset} as bytes that are no record`,
      {
        cause,
      },
    );
  }
};
