import { type Deadline, FencedError, type WriteOutcome } from "@krabka/core";
import { type Produced, produceAppend } from "./produce.js";
import { type Authority, abortTransaction, commitTransaction } from "./transaction.js";
import { committedAt, type PlannedBatch } from "./write-plan.js";

/** A write that is not settled, with what it takes to settle it. */
export type Unsettled =
  | { readonly kind: "commit"; readonly batches: readonly PlannedBatch[]; readonly produced: readonly Produced[] }
  /** No commit was sent. `outcome` is what a re-mint reports, where the write was reported as unknown. */
  | { readonly kind: "abort"; readonly outcome: WriteOutcome | undefined }
  /** The same bytes settle it. */
  | { readonly kind: "append"; readonly batch: PlannedBatch };

/** What became of it, undefined if that was never unknown; or why the pair is dead. */
export type Settled =
  | { readonly dead: undefined; readonly outcome: WriteOutcome | undefined }
  | { readonly dead: Error };

/** Learns what became of a write, and ends its transaction. @param awaitsMarker as in `ProduceOptions` */
export async function settle(
  unsettled: Unsettled,
  authority: Authority,
  awaitsMarker: boolean,
  deadline: Deadline,
): Promise<Settled> {
  switch (unsettled.kind) {
    case "abort": {
      // Without it the coordinator would fence this very pair when it ends the transaction for the next epoch.
      // One that is refused again would be for ever; the next member's mint ends the transaction.
      const { refusal } = await abortTransaction(authority, deadline);
      return refusal === undefined ? as(unsettled.outcome) : { dead: refusal };
    }
    case "commit": {
      const { outcome } = await commitTransaction(authority, deadline, true);
      if (outcome.status === "committed") return as(committedAt(unsettled.batches, unsettled.produced));
      if (outcome.status === "unknown" && FencedError.is(outcome.cause)) return { dead: outcome.cause };
      return as(outcome);
    }
    case "append": {
      const result = await produceAppend(authority.map, unsettled.batch, awaitsMarker, deadline);
      if (result.status === "written") return as(committedAt([unsettled.batch], [result]));
      if (FencedError.is(result.error)) return { dead: result.error };
      return as({ status: "unknown", cause: result.error });
    }
  }
}

const as = (outcome: WriteOutcome | undefined): Settled => ({ dead: undefined, outcome });
