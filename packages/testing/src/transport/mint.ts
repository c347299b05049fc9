import { KrabkaError, type ProducerPair, type Role, type SessionOptions } from "@krabka/core";
import { KafkaCode } from "../cluster/protocol.js";
import type { CallLimit } from "./call-limit.js";
import { type FakeConnection, FENCE_CODES, fencedError, refusalError, unreachable } from "./fake-connection.js";

const BUSY: readonly number[] = [KafkaCode.CONCURRENT_TRANSACTIONS];

/** An unconditional InitProducerId, sent at most once to a coordinator. */
export async function mint(
  connection: FakeConnection,
  role: Role,
  { transactionTimeoutMs, mayMint }: SessionOptions,
  limit: CallLimit,
): Promise<ProducerPair> {
  const route = connection.toCoordinator(role);
  for (;;) {
    const broker = await route.broker(limit);
    if (!mayMint()) throw new KrabkaError("BUSY", "The state behind this mint is no longer fresh", { role });
    const ask = { transactionalId: role, transactionTimeoutMs };
    const answer = await connection.once(limit, "InitProducerId", ask, broker).catch((error: unknown) => {
      route.forget();
      throw unreachable("InitProducerId", error);
    });
    if (answer.ok) return { producerId: answer.producerId, epoch: answer.epoch };
    // A broker that is not the coordinator did not mint, so the next one may be asked.
    if (answer.code !== KafkaCode.NOT_COORDINATOR) throw refusalError(`Role ${JSON.stringify(role)}`, answer.code);
    route.forget();
    await limit.sleep(1);
  }
}

/** The next epoch of a pair, which is refused when somebody else minted. @throws {FencedError} */
export async function mintAgain(
  connection: FakeConnection,
  role: Role,
  transactionTimeoutMs: number,
  expected: ProducerPair,
  limit: CallLimit,
): Promise<ProducerPair> {
  const ask = { transactionalId: role, transactionTimeoutMs, expected };
  const { answer } = await connection.repeat(limit, "InitProducerId", ask, connection.toCoordinator(role), BUSY);
  if (answer.ok) return { producerId: answer.producerId, epoch: answer.epoch };
  if (FENCE_CODES.has(answer.code)) throw fencedError("InitProducerId", answer.code, role);
  throw refusalError("InitProducerId", answer.code);
}
