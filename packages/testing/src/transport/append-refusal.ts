import { type ProducerPair, type Role, samePair } from "@krabka/core";
import { KafkaCode } from "../cluster/protocol.js";
import type { CallLimit } from "./call-limit.js";
import { type FakeConnection, FENCE_CODES } from "./fake-connection.js";

/** What a partition says of a sequence number or a transaction that does not fit. */
const OUT_OF_TURN: ReadonlySet<number> = new Set([
  KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
  KafkaCode.INVALID_TXN_STATE,
  KafkaCode.UNKNOWN_PRODUCER_ID,
]);

/** As the kafkajs transport does: the first append of a pair that the coordinator still names can't be refused as fenced. */
export async function isOfAllAppends(
  code: number,
  connection: FakeConnection,
  role: Role,
  pair: ProducerPair,
  isFirst: boolean,
  limit: CallLimit,
): Promise<boolean> {
  if (code === KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT) return true;
  if (!isFirst || !(FENCE_CODES.has(code) || OUT_OF_TURN.has(code))) return false;
  const ask = { transactionalId: role };
  const { answer } = await connection.repeat(limit, "DescribeTransactions", ask, connection.toCoordinator(role));
  return answer.ok && samePair(answer, pair);
}
