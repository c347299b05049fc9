import { FencedError, KrabkaError, type ProducerPair, type Role } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import { Backoff, type Deadline } from "./deadline.js";
import { CONCURRENT_TRANSACTIONS, errorOf, meaningOf, NONE, nameOf, TRANSACTIONAL_ID_NOT_FOUND } from "./error-codes.js";
import { askCoordinator, endsAtOnce, exchange, MarkerBackoff } from "./exchange.js";
import { DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID } from "./wire/api.js";
import {
  decodeDescribeTransactions,
  decodeInitProducerId,
  encodeDescribeTransactions,
  encodeInitProducerId,
} from "./wire/transaction-requests.js";

/**
 * The unconditional InitProducerId: from its success on, every older pair is refused by the coordinator. It is repeated
 * only after an answer that it was not executed, and asks `mayMint` each time.
 */
export async function mint(
  map: ClusterMap,
  role: Role,
  transactionTimeoutMs: number,
  mayMint: () => boolean,
  deadline: Deadline,
): Promise<ProducerPair> {
  const what = `Minting for role ${JSON.stringify(role)}`;
  const backoff = new Backoff(5, 100);
  const encode = (): Buffer => {
    if (!mayMint()) throw new KrabkaError("BUSY", `${what}: the state it rests on is no longer fresh`, { role });
    return encodeInitProducerId({ transactionalId: role, transactionTimeoutMs, own: undefined });
  };
  const request = { api: INIT_PRODUCER_ID, encode, decode: decodeInitProducerId };
  for (;;) {
    const nodeId = await map.coordinatorOf(role, deadline);
    const exchanged = await exchange(map, nodeId, "write", request, deadline);
    if (!exchanged.answered) {
      const { error, sent } = exchanged;
      if (KrabkaError.is(error)) throw error;
      map.forgetCoordinator(role);
      if (sent) throw new KrabkaError("UNREACHABLE", `${what}: no answer; it may have happened`, { role, cause: error });
      await deadline.pause(backoff.next());
      continue;
    }
    const { code, pair } = exchanged.answer;
    if (code === NONE) return pair;
    const meaning = meaningOf(code);
    if (code === CONCURRENT_TRANSACTIONS || meaning === "fenced") {
      throw new KrabkaError("BUSY", `${what}: the coordinator answered ${nameOf(code)}`, { role });
    }
    if (meaning !== "moved" && meaning !== "busy") throw errorOf(code, what);
    if (meaning === "moved") map.forgetCoordinator(role);
    await deadline.pause(backoff.next());
  }
}

/**
 * The conditional InitProducerId with the caller's own pair (KIP-360). A lost answer is settled by repeating it: the
 * coordinator remembers the epoch before and gives the same answer again, unless somebody else minted since.
 */
export async function mintAgain(
  map: ClusterMap,
  role: Role,
  transactionTimeoutMs: number,
  own: ProducerPair,
  deadline: Deadline,
): Promise<ProducerPair> {
  const what = `Minting again for role ${JSON.stringify(role)}`;
  const request = {
    api: INIT_PRODUCER_ID,
    encode: () => encodeInitProducerId({ transactionalId: role, transactionTimeoutMs, own }),
    decode: decodeInitProducerId,
  };
  const concurrent = new MarkerBackoff();
  const backoff = new Backoff(5, 100);
  let last: KrabkaError | undefined;
  const pause = async (delayMs: number): Promise<void> => {
    if (last !== undefined && deadline.remainingMs <= delayMs && deadline.ended?.code !== "ABORTED") throw last;
    await deadline.pause(delayMs);
  };
  for (;;) {
    const nodeId = await map.coordinatorOf(role, deadline);
    const exchanged = await exchange(map, nodeId, "write", request, deadline);
    if (!exchanged.answered) {
      const { error } = exchanged;
      if (endsAtOnce(error)) throw error;
      last = new KrabkaError("UNREACHABLE", `${what}: no answer`, { role, cause: error });
      map.forgetCoordinator(role);
      await pause(backoff.next());
      continue;
    }
    const { code, pair } = exchanged.answer;
    if (code === NONE) return pair;
    const meaning = meaningOf(code);
    if (code === CONCURRENT_TRANSACTIONS) {
      last = new KrabkaError("BUSY", `${what}: an earlier transaction is still being ended`, { role });
      await pause(concurrent.next());
    } else if (meaning === "moved" || meaning === "busy") {
      last = errorOf(code, what);
      if (meaning === "moved") map.forgetCoordinator(role);
      await pause(backoff.next());
    } else if (meaning === "fenced") {
      throw new FencedError(`${what}: the coordinator answered ${nameOf(code)}`, { role });
    } else throw errorOf(code, what);
  }
}

export interface CoordinatorView {
  /** Undefined when the coordinator does not know the role. */
  readonly pair: ProducerPair | undefined;
  readonly state: string;
}

/** @throws {KrabkaError} `UNREACHABLE`, `UNAUTHORIZED`, `TIMEOUT`, `ABORTED`, `CLOSED` */
export async function describeRole(map: ClusterMap, role: Role, deadline: Deadline): Promise<CoordinatorView> {
  const what = `Describing role ${JSON.stringify(role)}`;
  const result = await askCoordinator(
    map,
    role,
    {
      api: DESCRIBE_TRANSACTIONS,
      encode: () => encodeDescribeTransactions(role),
      decode: (from) => decodeDescribeTransactions(from)[0],
    },
    (answer) => answer?.code ?? -1,
    deadline,
  );
  const { answer, error } = result;
  if (answer === undefined) {
    if (KrabkaError.is(error)) throw error;
    throw new KrabkaError("UNREACHABLE", `${what}: no answer`, { role, cause: error });
  }
  if (answer.code === TRANSACTIONAL_ID_NOT_FOUND) return { pair: undefined, state: "unknown to the coordinator" };
  if (answer.code !== NONE) throw errorOf(answer.code, what);
  return { pair: answer.pair.epoch < 0 ? undefined : answer.pair, state: answer.state };
}
