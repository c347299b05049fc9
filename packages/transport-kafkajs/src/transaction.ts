import { FencedError, type KrabkaError, type ProducerPair, type Role, type WriteOutcome } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import type { Deadline } from "./deadline.js";
import { errorOf, meaningOf, NONE } from "./error-codes.js";
import { askCoordinator } from "./exchange.js";
import { type Produced, produceAll } from "./produce.js";
import { ADD_PARTITIONS_TO_TXN, END_TXN } from "./wire/api.js";
import type { ProducePartition } from "./wire/log-requests.js";
import {
  decodeAddPartitionsToTxn,
  decodeEndTxn,
  encodeAddPartitionsToTxn,
  encodeEndTxn,
  type TopicPartitions,
} from "./wire/transaction-requests.js";

/** Under whose authority a transaction runs. */
export interface Authority {
  readonly map: ClusterMap;
  readonly role: Role;
  readonly pair: ProducerPair;
}

/** What is left open after a write, to be settled before the session's next epoch. */
export type Unsettled = "commit" | "abort";

/** What became of a transaction, and in which state it leaves the session. */
export interface TransactionReport {
  readonly outcome: WriteOutcome;
  /** One for each batch, where it got that far. */
  readonly produced: readonly Produced[];
  readonly mustRemint: boolean;
  readonly unsettled: Unsettled | undefined;
}

/** A refusal before anything was written that is the caller's to know, such as a topic that does not exist. */
export class TransactionRefused extends Error {
  readonly reason: KrabkaError;
  readonly mustRemint: boolean;

  constructor(reason: KrabkaError, mustRemint: boolean) {
    super(reason.message, { cause: reason });
    this.reason = reason;
    this.mustRemint = mustRemint;
  }
}

const asError = (error: Error | undefined): Error => error ?? new Error("No answer");

/**
 * AddPartitionsToTxn, Produce to all leaders, EndTxn. Nothing can become visible before the commit request is on the
 * wire, so everything that fails earlier is `aborted`.
 *
 * @throws {TransactionRefused}
 */
export async function runTransaction(
  authority: Authority,
  batches: readonly ProducePartition[],
  deadline: Deadline,
): Promise<TransactionReport> {
  const opened = await addPartitions(authority, batches, deadline);
  if (opened.failure !== undefined) return { ...opened.failure, produced: [] };
  const { results, lost } = await produceAll(
    authority.map,
    batches,
    { transactionalId: authority.role, repeatable: true },
    deadline,
  );
  const lostAnswer = opened.lost || lost;
  const failed = results.find(({ status }) => status !== "written");
  const ended =
    failed === undefined || failed.status === "written"
      ? await commitTransaction(authority, deadline)
      : await abortAfter(authority, failed, deadline);
  return { ...ended, produced: results, mustRemint: ended.mustRemint || lostAnswer };
}

type Ended = Omit<TransactionReport, "produced">;

const addPartitions = async (
  { map, role, pair }: Authority,
  batches: readonly ProducePartition[],
  deadline: Deadline,
): Promise<{ readonly failure: Ended | undefined; readonly lost: boolean }> => {
  const topics = new Map<string, number[]>();
  for (const { topic, partition } of batches) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  const wanted: TopicPartitions[] = [...topics].map(([topic, partitions]) => ({ topic, partitions }));
  const { answer, error, lost, doubtful } = await askCoordinator(
    map,
    role,
    {
      api: ADD_PARTITIONS_TO_TXN,
      encode: () => encodeAddPartitionsToTxn(role, pair, wanted),
      decode: decodeAddPartitionsToTxn,
    },
    (partitions) => decisive(partitions.map(({ code }) => code)),
    deadline,
  );
  const mayBeOpen = lost || doubtful;
  const unsettled = mayBeOpen ? "abort" : undefined;
  if (answer === undefined) {
    const outcome: WriteOutcome = { status: "aborted", cause: asError(error) };
    return { failure: { outcome, mustRemint: mayBeOpen, unsettled }, lost };
  }
  const code = decisive(answer.map((partition) => partition.code));
  if (code === NONE) return { failure: undefined, lost };
  const refused = answer.find((partition) => partition.code === code);
  const cause = errorOf(code, `Adding ${refused?.topic}-${refused?.partition} to the transaction`);
  switch (meaningOf(code)) {
    case "fenced":
      return { failure: { outcome: { status: "fenced", cause }, mustRemint: false, unsettled: undefined }, lost };
    case "refused":
      map.forgetTopic(refused?.topic ?? "");
      throw new TransactionRefused(cause, mayBeOpen);
    default:
      return { failure: { outcome: { status: "aborted", cause }, mustRemint: true, unsettled: "abort" }, lost };
  }
};

const OPERATION_NOT_ATTEMPTED = 55;

/** Partitions are added all or none; those that stood back for another one's error carry 55. */
const decisive = (codes: readonly number[]): number =>
  codes.find((code) => code !== NONE && code !== OPERATION_NOT_ATTEMPTED) ??
  codes.find((code) => code !== NONE) ??
  NONE;

const endTransaction = ({ map, role, pair }: Authority, commit: boolean, deadline: Deadline) =>
  askCoordinator(
    map,
    role,
    { api: END_TXN, encode: () => encodeEndTxn(role, pair, commit), decode: (from) => ({ code: decodeEndTxn(from) }) },
    ({ code }) => code,
    deadline,
  );

/**
 * EndTxn(commit), repeated until its answer stands: the coordinator answers a repeated commit with success, and with
 * INVALID_TXN_STATE when the transaction was aborted.
 *
 * @param earlierDoubt an earlier EndTxn(commit) of the same transaction may have been executed.
 */
export async function commitTransaction(
  authority: Authority,
  deadline: Deadline,
  earlierDoubt = false,
): Promise<Ended> {
  const { answer, error, lost, doubtful } = await endTransaction(authority, true, deadline);
  const mayHaveCommitted = earlierDoubt || lost || doubtful;
  if (answer === undefined) {
    const cause = asError(error);
    return mayHaveCommitted
      ? { outcome: { status: "unknown", cause }, mustRemint: true, unsettled: "commit" }
      : { outcome: { status: "aborted", cause }, mustRemint: true, unsettled: "abort" };
  }
  if (answer.code === NONE) {
    return { outcome: { status: "committed", positions: [] }, mustRemint: lost || doubtful, unsettled: undefined };
  }
  const cause = errorOf(answer.code, "Committing the transaction");
  switch (meaningOf(answer.code)) {
    case "fenced":
      // A rival may have minted after the commit whose answer was lost, so the refusal proves nothing about it.
      return mayHaveCommitted
        ? { outcome: { status: "unknown", cause }, mustRemint: true, unsettled: undefined }
        : { outcome: { status: "fenced", cause }, mustRemint: false, unsettled: undefined };
    case "refused-transaction":
      return { outcome: { status: "aborted", cause }, mustRemint: true, unsettled: "abort" };
    case "refused":
      return mayHaveCommitted
        ? { outcome: { status: "unknown", cause }, mustRemint: true, unsettled: "commit" }
        : { outcome: { status: "aborted", cause }, mustRemint: true, unsettled: "abort" };
    default:
      return { outcome: { status: "unknown", cause }, mustRemint: true, unsettled: "commit" };
  }
}

const abortAfter = async (
  authority: Authority,
  failed: Exclude<Produced, { status: "written" }>,
  deadline: Deadline,
): Promise<Ended> => {
  const cause = failed.error;
  if (FencedError.is(cause)) {
    return { outcome: { status: "fenced", cause }, mustRemint: false, unsettled: undefined };
  }
  const aborted = await abortTransaction(authority, deadline);
  if (aborted.fenced !== undefined) {
    const fenced = new FencedError(aborted.fenced.message, { cause });
    return { outcome: { status: "fenced", cause: fenced }, mustRemint: false, unsettled: undefined };
  }
  // A batch that may have been written leaves the next sequence number open; a new epoch starts at 0.
  return {
    outcome: { status: "aborted", cause },
    mustRemint: failed.doubtful || !aborted.clean,
    unsettled: aborted.clean ? undefined : "abort",
  };
};

/** EndTxn(abort); `clean` when the coordinator confirmed it at the first attempt or had nothing open. */
export async function abortTransaction(
  authority: Authority,
  deadline: Deadline,
): Promise<{ readonly clean: boolean; readonly fenced: Error | undefined }> {
  const { answer, lost, doubtful } = await endTransaction(authority, false, deadline);
  if (answer === undefined) return { clean: false, fenced: undefined };
  if (answer.code === NONE) return { clean: !lost && !doubtful, fenced: undefined };
  const fenced = meaningOf(answer.code) === "fenced" ? errorOf(answer.code, "Aborting the transaction") : undefined;
  return { clean: false, fenced };
}
