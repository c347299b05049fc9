import { type Deadline, KrabkaError, type ProducerPair, type Role } from "@krabka/core";
import type { NativeError } from "./native-binding.js";
import {
  codeOf,
  errorOf,
  INVALID_TRANSACTION_TIMEOUT,
  loggedMintError,
  refusesMint,
  TIMED_OUT,
} from "./native-errors.js";
import type { ProducerInstance } from "./producer-instance.js";

/** The facility of librdkafka's log entry that InitProducerId failed and is about to be repeated. */
const REPEATING = "GETPID";
/** librdkafka returns as soon as it has the pair; after this it goes on by itself. */
const FIRST_WAIT_MS = 20;
/** States in which another call of `init_transactions` sends nothing. */
const SETTLED: ReadonlySet<string> = new Set(["Assigned", "FatalError"]);

/**
 * - `not-sent`: `mayMint` said no; the producer is as good as before.
 * - `not-yet`: the coordinator is not ready and did nothing; the producer is of no use, since it would repeat the request.
 */
export type Minted = { readonly pair: ProducerPair } | "not-sent" | "not-yet";

/**
 * Mints under a new, connected producer.
 *
 * librdkafka repeats an InitProducerId that failed: half a second later, on a new connection at once, and at once when
 * `init_transactions` is called again. By then another member may have minted. So this stops at the first failure, calls
 * again only to fetch what is there, and counts the requests: a mint that took more than one is not used.
 *
 * @throws {KrabkaError} as `Transport.openSession`; the producer is of no use after that.
 */
export const mint = async (
  producer: ProducerInstance,
  role: Role,
  transactionTimeoutMs: number,
  mayMint: () => boolean,
  deadline: Deadline,
): Promise<Minted> => {
  const failures: NativeError[] = [];
  const stopListening = producer.onLog((facility, text) => {
    if (facility === REPEATING) failures.push(loggedMintError(text));
  });
  try {
    const failure = await initialise(producer, role, mayMint, failures, deadline);
    if (failure === undefined) return { pair: await pairOf(producer, role, deadline) };
    if (failure === "not-sent") return failure;
    if (refusesMint(codeOf(failure))) return "not-yet";
    throw mintError(failure, role, transactionTimeoutMs);
  } finally {
    stopListening();
  }
};

/** @returns why there is no pair, or undefined when there is */
const initialise = async (
  producer: ProducerInstance,
  role: Role,
  mayMint: () => boolean,
  failures: readonly NativeError[],
  deadline: Deadline,
): Promise<NativeError | "not-sent" | undefined> => {
  const first = await producer.initTransactions(FIRST_WAIT_MS, deadline, mayMint);
  if (first === undefined) return "not-sent";
  if (first.ok) return undefined;
  if (codeOf(first.error) !== TIMED_OUT) return first.error;
  const { idempotenceState } = await producer.statisticsUntil(deadline, (statistics) => {
    const settled = failures.length > 0 || SETTLED.has(statistics.idempotenceState);
    return settled || (statistics.sent("InitProducerId") === 0 && !mayMint());
  });
  if (failures[0] !== undefined) return failures[0];
  if (!SETTLED.has(idempotenceState)) {
    throw unanswered(role, "the coordinator was not reached while the role's state was fresh");
  }
  const last = await producer.initTransactions(FIRST_WAIT_MS, deadline, () => true);
  return last?.ok === false ? last.error : undefined;
};

/**
 * The pair is in librdkafka's statistics alone. `Ready` is the state that the acknowledged end of this producer's one
 * initialisation leads to, so statistics that say so were written after it and tell its pair.
 */
const pairOf = async (producer: ProducerInstance, role: Role, deadline: Deadline): Promise<ProducerPair> => {
  const statistics = await producer.statisticsUntil(
    deadline,
    ({ pair, transactionState }) => pair !== undefined && transactionState === "Ready",
  );
  if (statistics.sent("InitProducerId") !== 1) throw unanswered(role, "librdkafka repeated the request by itself");
  return statistics.pair as ProducerPair;
};

const mintError = (error: NativeError, role: Role, transactionTimeoutMs: number): KrabkaError => {
  const what = `Minting for role ${JSON.stringify(role)}`;
  if (codeOf(error) === INVALID_TRANSACTION_TIMEOUT) {
    const message = `${what}: a transaction timeout of ${transactionTimeoutMs} ms is over the broker's transaction.max.timeout.ms`;
    return new KrabkaError("INVALID_ARGUMENT", message, { role, cause: error });
  }
  const known = errorOf(error, what, `Write on transactional id ${JSON.stringify(role)}`);
  // Another InitProducerId for the role came in between: the role is to be read again.
  return known.code === "FENCED" ? new KrabkaError("BUSY", known.message, { role, cause: error }) : known;
};

const unanswered = (role: Role, why: string): KrabkaError =>
  new KrabkaError("UNREACHABLE", `Whether the mint for role ${JSON.stringify(role)} happened is not known: ${why}`, {
    role,
  });
