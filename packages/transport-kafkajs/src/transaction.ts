import { type Deadline, FencedError, KrabkaError, type ProducerPair, type Role, type WriteOutcome } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import {
  errorOf,
  INVALID_TXN_STATE,
  meaningOf,
  NONE,
  OPERATION_NOT_ATTEMPTED,
  onRole,
  onTopic,
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
} from "./error-codes.js";
import { askCoordinator, type CoordinatorResult } from "./exchange.js";
import { type Produced, produceAll } from "./produce.js";
import { ADD_PARTITIONS_TO_TXN, END_TXN } from "./wire/api.js";
import type { ProducePartition } from "./wire/log-requests.js";
import {
  decodeAddPartitionsToTxn,
  decodeEndTxn,
  encodeAddPartitionsToTxn,
  encodeEndTxn,
  type PartitionCode,
  type TopicPartitions,
} from "./wire/transaction-requests.js";

/** Under whose authority a transaction runs. */
export interface Authority {
  readonly map: ClusterMap;
  readonly role: Role;
  readonly pair: ProducerPair;
}

/** How a transaction ended, and in which state it leaves the session. Positions are the caller's to fill in. */
export interface Ended {
  readonly outcome: WriteOutcome;
  readonly mustRemint: boolean;
  /** The EndTxn that is still to be confirmed before the next epoch. */
  readonly unsettled: "commit" | "abort" | undefined;
}

export interface TransactionReport extends Ended {
  /** One for each batch, round by round, as far as it got. */
  readonly produced: readonly Produced[];
}

/** A refusal before anything was written that is the caller's to know, such as a topic that does not exist. */
export class TransactionRefused extends Error {
  override readonly name = "TransactionRefused";
  readonly reason: KrabkaError;
  readonly mustRemint: boolean;

  constructor(reason: KrabkaError, mustRemint: boolean) {
    super(reason.message, { cause: reason });
    this.reason = reason;
    this.mustRemint = mustRemint;
  }
}

const asError = (error: Error | undefined): Error => error ?? new Error("No answer");

const ended = (outcome: WriteOutcome, unsettled?: "commit" | "abort"): Ended => ({
  outcome,
  mustRemint: unsettled !== undefined,
  unsettled,
});

/**
 * AddPartitionsToTxn, Produce to all leaders at once, EndTxn. Each round holds at most one batch for a partition.
 *
 * Nothing can become visible before a commit request is on the wire.
 *
 * @throws {TransactionRefused}
 */
export async function runTransaction(
  authority: Authority,
  rounds: readonly (readonly ProducePartition[])[],
  deadline: Deadline,
): Promise<TransactionReport> {
  const opened = await addPartitions(authority, rounds[0] ?? [], deadline);
  if (opened.failure !== undefined) return { ...opened.failure, produced: [] };
  const produced: Produced[] = [];
  const options = { transactionalId: authority.role, repeatable: true, awaitsMarker: false };
  let lostAnswer = opened.lost;
  let failure: Failure | undefined;
  for (const round of rounds) {
    const { results, lost } = await produceAll(authority.map, round, options, deadline);
    lostAnswer ||= lost;
    produced.push(...results);
    failure = results.find((result): result is Failure => result.status !== "written");
    if (failure !== undefined) break;
  }
  const end =
    failure === undefined
      ? await commitTransaction(authority, deadline)
      : await abortAfter(authority, failure, deadline);
  return { ...end, produced, mustRemint: end.mustRemint || (lostAnswer && end.outcome.status !== "fenced") };
}

type Failure = Exclude<Produced, { status: "written" }>;

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
    (partitions) => decisive(partitions).code,
    deadline,
  );
  const mayBeOpen = lost || doubtful;
  if (answer === undefined) {
    const outcome: WriteOutcome = { status: "aborted", cause: asError(error) };
    return { failure: ended(outcome, mayBeOpen ? "abort" : undefined), lost };
  }
  const { code, topic, partition } = decisive(answer);
  if (code === NONE) return { failure: undefined, lost };
  const right = code === TRANSACTIONAL_ID_AUTHORIZATION_FAILED ? onRole("Write", role) : onTopic("Write", topic);
  const cause = errorOf(code, `Adding ${topic}-${partition} to the transaction`, { right });
  switch (meaningOf(code)) {
    case "fenced":
      return { failure: ended({ status: "fenced", cause }), lost };
    case "refused":
      map.forgetTopic(topic);
      throw new TransactionRefused(cause, mayBeOpen);
    default:
      return { failure: ended({ status: "aborted", cause }, "abort"), lost };
  }
};

/** Partitions are added all or none; those that stood back for another one's error carry 55. */
const decisive = (partitions: readonly PartitionCode[]): PartitionCode =>
  partitions.find(({ code }) => code !== NONE && code !== OPERATION_NOT_ATTEMPTED) ??
  partitions.find(({ code }) => code !== NONE) ??
  partitions[0] ?? { topic: "", partition: -1, code: NONE };

const endTransaction = (
  { map, role, pair }: Authority,
  commit: boolean,
  deadline: Deadline,
): Promise<CoordinatorResult<number>> =>
  askCoordinator(
    map,
    role,
    { api: END_TXN, encode: () => encodeEndTxn(role, pair, commit), decode: decodeEndTxn },
    (code) => code,
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
    return ended({ status: "unknown", cause: asError(error) }, mayHaveCommitted ? "commit" : "abort");
  }
  if (answer === NONE) {
    return { outcome: { status: "committed", positions: [] }, mustRemint: lost || doubtful, unsettled: undefined };
  }
  const cause = errorOf(answer, "Committing the transaction", { right: onRole("Write", authority.role) });
  switch (meaningOf(answer)) {
    case "fenced":
      // A rival may have minted after the commit whose answer was lost, so the refusal proves nothing about it.
      return mayHaveCommitted
        ? { outcome: { status: "unknown", cause }, mustRemint: true, unsettled: undefined }
        : ended({ status: "fenced", cause });
    case "refused-transaction":
    case "refused":
      // A repeated commit gets INVALID_TXN_STATE where the transaction was aborted; no other refusal says anything about
      // the earlier one.
      return mayHaveCommitted && answer !== INVALID_TXN_STATE
        ? ended({ status: "unknown", cause }, "commit")
        : ended({ status: "aborted", cause }, "abort");
    default:
      return ended({ status: "unknown", cause }, "commit");
  }
}

const abortAfter = async (authority: Authority, failure: Failure, deadline: Deadline): Promise<Ended> => {
  const cause = failure.error;
  if (FencedError.is(cause)) return ended({ status: "fenced", cause });
  const { confirmed, refusal } = await abortTransaction(authority, deadline);
  if (FencedError.is(refusal)) {
    return ended({ status: "fenced", cause: new FencedError(refusal.message, { cause }) });
  }
  if (confirmed === "no") {
    // The interface calls a write unknown that ran into its limit after something was sent; settling it says aborted.
    const status = failure.status === "ended" ? "unknown" : "aborted";
    return ended({ status, cause: refusal === undefined ? cause : notAborted(cause, refusal) }, "abort");
  }
  // A batch that may have been written leaves the next sequence number open; a new epoch starts at 0.
  const mustRemint = failure.doubtful || confirmed === "after-doubt";
  return { outcome: { status: "aborted", cause }, mustRemint, unsettled: undefined };
};

/** What failed first is what a caller has to know; that the abort failed as well comes behind it. */
const notAborted = (error: Error, refusal: KrabkaError): KrabkaError =>
  new KrabkaError(
    KrabkaError.is(error) ? error.code : "NOT_COMMITTED",
    `${error.message}; the abort after it was refused`,
    { cause: refusal },
  );

/** What the coordinator says to an EndTxn(abort). */
export interface Aborted {
  /** `after-doubt`: confirmed, but an earlier attempt may still arrive. */
  readonly confirmed: "yes" | "after-doubt" | "no";
  /** Why it does not abort, where it said so: asking again does not help. */
  readonly refusal: KrabkaError | undefined;
}

/** EndTxn(abort), repeated until its answer stands or the call ends. */
export async function abortTransaction(authority: Authority, deadline: Deadline): Promise<Aborted> {
  const { answer, lost, doubtful } = await endTransaction(authority, false, deadline);
  if (answer === undefined) return { confirmed: "no", refusal: undefined };
  if (answer === NONE) return { confirmed: lost || doubtful ? "after-doubt" : "yes", refusal: undefined };
  // Nothing is open: it was ended before, or never began.
  if (answer === INVALID_TXN_STATE) return { confirmed: "after-doubt", refusal: undefined };
  return { confirmed: "no", refusal: errorOf(answer, "Aborting the transaction") };
}
