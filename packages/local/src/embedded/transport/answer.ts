import type { Deadline } from "@krabka/core";
import type { BrokerAnswer, BrokerRequest } from "../broker/request.js";
import type { BrokerClient } from "../link/broker-client.js";
import type { PendingRequest } from "../link/pending-request.js";
import { lostError } from "./refusals.js";

/** The answer to a request that nobody asks about again: what became of it is not learned once the limit is reached. */
export async function answerTo(
  client: BrokerClient,
  pending: PendingRequest,
  limit: Deadline,
  what: string,
): Promise<BrokerAnswer> {
  try {
    return await limit.race(pending.answer);
  } catch (error) {
    throw lostError(client.explain(error), what);
  } finally {
    pending.abandon();
    pending.forget();
  }
}

export const ask = (client: BrokerClient, request: BrokerRequest, limit: Deadline): Promise<BrokerAnswer> =>
  answerTo(client, client.send(request), limit, request.kind);
