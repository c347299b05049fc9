import { Backoff, type Deadline } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import { errorOf, INVALID_TXN_STATE, meaningOf, NONE, onTopic, UNKNOWN_TOPIC_OR_PARTITION } from "./error-codes.js";
import { endsAtOnce, exchange, MarkerBackoff } from "./exchange.js";
import { PRODUCE } from "./wire/api.js";
import { decodeProduce, encodeProduce, type ProduceAnswer, type ProducePartition } from "./wire/log-requests.js";

/** What became of one batch. */
export type Produced =
  | { readonly status: "written"; readonly baseOffset: bigint; readonly appendedAtMs: number | undefined }
  /** Refused with `code`; `doubtful` when an earlier attempt may have been written nevertheless. */
  | { readonly status: "refused"; readonly code: number; readonly error: Error; readonly doubtful: boolean }
  /** The call ended first. Not `doubtful`: nothing was written. */
  | { readonly status: "ended"; readonly error: Error; readonly doubtful: boolean };

export interface ProducedAll {
  /** One for each batch, in order. */
  readonly results: readonly Produced[];
  /** A request was sent and not answered: it may still arrive. */
  readonly lost: boolean;
}

export interface ProduceOptions {
  readonly transactionalId: string | null;
  /** Whether a batch may be sent again after an attempt that may have been written; true where sequence numbers guard. */
  readonly repeatable: boolean;
  /** Whether INVALID_TXN_STATE can mean that the marker of the same pair's last transaction is still on its way. */
  readonly awaitsMarker: boolean;
}

/** How long the leader of a partition may not know it, although the cluster names it as the leader. */
const LEADER_LAGS_MS = 1_000;

interface Pending {
  readonly index: number;
  readonly batch: ProducePartition;
  doubtful: boolean;
  last: Error | undefined;
}

const written = ({ baseOffset, logAppendTimeMs }: ProduceAnswer): Produced => ({
  status: "written",
  baseOffset,
  appendedAtMs: logAppendTimeMs >= 0 ? logAppendTimeMs : undefined,
});

/** Writes one batch outside of transactions, under the sequence number that it carries. Never rejects. */
export async function produceAppend(
  map: ClusterMap,
  batch: ProducePartition,
  awaitsMarker: boolean,
  deadline: Deadline,
): Promise<Produced> {
  const { results } = await produceAll(
    map,
    [batch],
    { transactionalId: null, repeatable: true, awaitsMarker },
    deadline,
  );
  return results[0] as Produced;
}

/** Writes one batch for each partition, all leaders at once, until each is settled or the call ends. Never rejects. */
export async function produceAll(
  map: ClusterMap,
  batches: readonly ProducePartition[],
  options: ProduceOptions,
  deadline: Deadline,
): Promise<ProducedAll> {
  const results: Produced[] = new Array(batches.length);
  const backoff = new Backoff(5, 100);
  const markers = new MarkerBackoff();
  // The partition refuses an append beside the pair's own transaction, whose marker comes shortly after its commit.
  let awaitsMarker = false;
  let lost = false;
  const startedAtMs = deadline.clock.monotonicMs();
  let pending: Pending[] = batches.map((batch, index) => ({ index, batch, doubtful: false, last: undefined }));

  const settle = (entry: Pending, answer: ProduceAnswer | undefined): boolean => {
    if (answer?.code === NONE) {
      results[entry.index] = written(answer);
      return true;
    }
    const code = answer?.code ?? -1;
    const { topic, partition } = entry.batch;
    const right = onTopic("Write", topic);
    const error = errorOf(code, `Writing to ${topic}-${partition}`, { detail: answer?.message, right });
    const meaning = meaningOf(code);
    if (meaning === "moved" || meaning === "doubtful") map.forgetTopic(entry.batch.topic);
    entry.last = error;
    if (meaning === "doubtful" || meaning === "unknown") entry.doubtful = true;
    const marker = code === INVALID_TXN_STATE && options.awaitsMarker;
    awaitsMarker ||= marker;
    // A broker hears of a new topic a moment after the one that was asked for the leader.
    const lags = code === UNKNOWN_TOPIC_OR_PARTITION && deadline.clock.monotonicMs() - startedAtMs < LEADER_LAGS_MS;
    const again =
      marker || lags || meaning === "moved" || meaning === "busy" || (meaning === "doubtful" && options.repeatable);
    if (!again) results[entry.index] = { status: "refused", code, error, doubtful: entry.doubtful };
    return !again;
  };

  const send = async (nodeId: number, group: readonly Pending[]): Promise<Pending[]> => {
    const timeoutMs = Math.ceil(Math.max(1, Math.min(map.requestTimeoutMs, deadline.remainingMs)));
    const request = {
      api: PRODUCE,
      encode: () =>
        encodeProduce(
          options.transactionalId,
          timeoutMs,
          group.map(({ batch }) => batch),
        ),
      decode: decodeProduce,
    };
    const exchanged = await exchange(map, nodeId, "write", request, deadline);
    if (exchanged.answered) {
      const answerFor = ({ batch }: Pending): ProduceAnswer | undefined =>
        exchanged.answer.find(({ topic, partition }) => topic === batch.topic && partition === batch.partition);
      return group.filter((entry) => !settle(entry, answerFor(entry)));
    }
    lost ||= exchanged.sent;
    return group.filter((entry) => {
      entry.last = exchanged.error;
      entry.doubtful ||= exchanged.sent;
      map.forgetTopic(entry.batch.topic);
      const again = !endsAtOnce(exchanged.error) && (options.repeatable || !exchanged.sent);
      if (!again) results[entry.index] = { status: "ended", error: exchanged.error, doubtful: entry.doubtful };
      return again;
    });
  };

  for (;;) {
    try {
      const groups = new Map<number, Pending[]>();
      for (const entry of pending) {
        const { nodeId } = await map.leaderOf(entry.batch.topic, entry.batch.partition, deadline);
        const group = groups.get(nodeId);
        if (group === undefined) groups.set(nodeId, [entry]);
        else group.push(entry);
      }
      pending = (await Promise.all([...groups].map(([nodeId, group]) => send(nodeId, group)))).flat();
      if (pending.length === 0) return { results, lost };
      await deadline.pause(awaitsMarker ? markers.next() : backoff.next());
      awaitsMarker = false;
    } catch (thrown) {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      for (const entry of pending) {
        results[entry.index] = { status: "ended", error: entry.last ?? error, doubtful: entry.doubtful };
      }
      return { results, lost };
    }
  }
}
