import { Backoff, type Deadline, FencedError, KrabkaError, type ProducerPair, type Role, samePair } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import {
  CONCURRENT_TRANSACTIONS,
  errorOf,
  INVALID_TRANSACTION_TIMEOUT,
  meaningOf,
  NONE,
  nameOf,
  onRole,
  TRANSACTIONAL_ID_NOT_FOUND,
} from "./error-codes.js";
import { askCoordinator, exchange, MarkerBackoff } from "./exchange.js";
import { DESCRIBE_CONFIGS, DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID } from "./wire/api.js";
import { CONFIGURED, decodeDescribeConfigs, encodeDescribeConfigs } from "./wire/cluster-requests.js";
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
      if (sent)
        throw new KrabkaError("UNREACHABLE", `${what}: no answer; it may have happened`, { role, cause: error });
      await deadline.pause(backoff.next());
      continue;
    }
    const { code, pair } = exchanged.answer;
    if (code === NONE) return pair;
    if (code === INVALID_TRANSACTION_TIMEOUT) {
      const maximum = await maximumTimeout(map, nodeId, deadline);
      const message = `${what}: a transaction timeout of ${transactionTimeoutMs} ms is over the broker's ${maximum}`;
      throw new KrabkaError("INVALID_ARGUMENT", message, { role });
    }
    const meaning = meaningOf(code);
    if (code === CONCURRENT_TRANSACTIONS || meaning === "fenced") {
      throw new KrabkaError("BUSY", `${what}: the coordinator answered ${nameOf(code)}`, { role });
    }
    if (meaning !== "moved" && meaning !== "busy") throw errorOf(code, what, { role, right: onRole("Write", role) });
    if (meaning === "moved") map.forgetCoordinator(role);
    await deadline.pause(backoff.next());
  }
}

const MAXIMUM_TIMEOUT = "transaction.max.timeout.ms";

/** A broker's setting, with its value where this user may read it. */
async function maximumTimeout(map: ClusterMap, nodeId: number, deadline: Deadline): Promise<string> {
  const encode = (): Buffer => encodeDescribeConfigs(CONFIGURED.broker, String(nodeId), [MAXIMUM_TIMEOUT]);
  const exchanged = await exchange(
    map,
    nodeId,
    "write",
    { api: DESCRIBE_CONFIGS, encode, decode: decodeDescribeConfigs },
    deadline,
  );
  const value = exchanged.answered ? exchanged.answer[0]?.configs.get(MAXIMUM_TIMEOUT) : undefined;
  return typeof value === "string" ? `${MAXIMUM_TIMEOUT} of ${value} ms` : MAXIMUM_TIMEOUT;
}

/** A description older than this proves too little, for instance after the process was paused. */
const FRESH_MS = 1000;

/**
 * The conditional InitProducerId with the caller's own pair (KIP-360). A lost answer is settled by repeating it: the
 * coordinator remembers the epoch before and gives the same answer again, unless somebody else minted since.
 *
 * While a transaction is open the coordinator compares producer ids only: a stale epoch would end a rival's transaction
 * and fence the rival (measured on Kafka 4.1). So the coordinator is asked who leads right before each attempt, and
 * nothing is sent while somebody else has a transaction open.
 */
export async function mintAgain(
  map: ClusterMap,
  role: Role,
  transactionTimeoutMs: number,
  own: ProducerPair,
  deadline: Deadline,
): Promise<ProducerPair> {
  const what = `Minting again for role ${JSON.stringify(role)}`;
  let describedAtMs = 0;
  const encode = (): Buffer => {
    if (map.clock.monotonicMs() - describedAtMs > FRESH_MS)
      throw new KrabkaError("BUSY", `${what}: too slow`, { role });
    return encodeInitProducerId({ transactionalId: role, transactionTimeoutMs, own });
  };
  const request = { api: INIT_PRODUCER_ID, encode, decode: decodeInitProducerId };
  const concurrent = new MarkerBackoff();
  const backoff = new Backoff(5, 100);
  let last: KrabkaError | undefined;
  let mayHaveMinted = false;
  const pause = async (delayMs: number): Promise<void> => {
    if (last !== undefined && deadline.remainingMs <= delayMs && deadline.ended?.code !== "ABORTED") throw last;
    await deadline.pause(delayMs);
  };
  for (;;) {
    describedAtMs = map.clock.monotonicMs();
    const { pair: current, state } = await describeRole(map, role, deadline);
    const isOwn = current !== undefined && samePair(current, own);
    const isOpen = state === OPEN_TRANSACTION;
    if (!isOwn && (isOpen || !mayHaveMinted)) {
      throw new FencedError(`${what}: the coordinator names another pair, or none`, { role });
    }
    if (isOwn && isOpen)
      throw new KrabkaError("BUSY", `${what}: the session's own transaction is still open`, { role });
    const nodeId = await map.coordinatorOf(role, deadline);
    const exchanged = await exchange(map, nodeId, "write", request, deadline);
    if (!exchanged.answered) {
      const { error } = exchanged;
      if (KrabkaError.is(error)) throw error;
      mayHaveMinted ||= exchanged.sent;
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
      if (meaning === "moved") {
        // The coordinator says so also when its own log was too slow to take the new epoch, which may stand after all.
        mayHaveMinted = true;
        map.forgetCoordinator(role);
      }
      await pause(backoff.next());
    } else if (meaning === "fenced") {
      throw new FencedError(`${what}: the coordinator answered ${nameOf(code)}`, { role });
    } else throw errorOf(code, what, { role, right: onRole("Write", role) });
  }
}

/** The coordinator's word for the state of a transaction that was begun and not ended. */
const OPEN_TRANSACTION = "Ongoing";

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
  if (answer.code !== NONE) throw errorOf(answer.code, what, { role, right: onRole("Describe", role) });
  return { pair: answer.pair.epoch < 0 ? undefined : answer.pair, state: answer.state };
}
