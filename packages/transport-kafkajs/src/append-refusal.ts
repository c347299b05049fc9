import { type Deadline, KrabkaError, samePair } from "@krabka/core";
import { meaningOf } from "./error-codes.js";
import { describeRole } from "./mint.js";
import type { Produced } from "./produce.js";
import type { Authority } from "./transaction.js";

/**
 * Whether the broker refuses fenced appends as such. It says so, or it refuses the first append of a pair that the
 * coordinator, asked after that, still names: nobody has minted since, so the refusal is no fence, and a pair's first
 * sequence number can't be wrong.
 */
export async function isOfAllAppends(
  result: Produced,
  { map, role, pair }: Authority,
  isFirst: boolean,
  deadline: Deadline,
): Promise<boolean> {
  if (!stands(result)) return false;
  if (isUnsupported(result.error)) return true;
  const meaning = meaningOf(result.code);
  if (!isFirst || (meaning !== "fenced" && meaning !== "refused-transaction")) return false;
  const known = await describeRole(map, role, deadline).catch(() => ({ pair: undefined }));
  return known.pair !== undefined && samePair(known.pair, pair);
}

/** The same for a retirement: a partition takes the first record of any id's last epoch. */
export const isOfAllRetirements = (result: Produced): boolean =>
  stands(result) && (isUnsupported(result.error) || meaningOf(result.code) === "refused-transaction");

/** A refusal that stands: nothing was written, by no attempt. */
const stands = (result: Produced): result is Extract<Produced, { status: "refused" }> =>
  result.status === "refused" && !result.doubtful;

const isUnsupported = (error: Error): boolean => KrabkaError.is(error) && error.code === "UNSUPPORTED";
