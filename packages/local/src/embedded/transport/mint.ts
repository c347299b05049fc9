import { type Deadline, KrabkaError, type ProducerPair, type Role, type SessionOptions } from "@krabka/core";
import type { BrokerClient } from "../link/broker-client.js";
import { answerTo } from "./answer.js";
import { refusalError, unexpected } from "./refusals.js";

/** As Kafka's `transaction.max.timeout.ms`. No transaction is ever open here, so it bounds nothing else. */
const MAX_TRANSACTION_TIMEOUT_MS = 900_000;

/** A new pair for the role, asked for at most once. @throws as `Transport.openSession` */
export async function mint(
  client: BrokerClient,
  role: Role,
  { transactionTimeoutMs, mayMint }: SessionOptions,
  limit: Deadline,
): Promise<ProducerPair> {
  if (!(transactionTimeoutMs > 0 && transactionTimeoutMs <= MAX_TRANSACTION_TIMEOUT_MS)) {
    throw new KrabkaError(
      "INVALID_ARGUMENT",
      `transactionTimeoutMs must be in 1..${MAX_TRANSACTION_TIMEOUT_MS}; got ${transactionTimeoutMs}`,
      { role },
    );
  }
  await client.ready(limit);
  if (!mayMint()) throw new KrabkaError("BUSY", "The state behind this mint is no longer fresh", { role });
  const answer = await answerTo(client, client.sendOnce({ kind: "mint", role }), limit, "a mint");
  if (answer.status === "refused") throw refusalError(answer, role);
  if (answer.status !== "minted") throw unexpected(answer, "a mint");
  return answer.pair;
}
