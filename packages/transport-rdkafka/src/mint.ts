import { KrabkaError, type ProducerPair, type Role } from "@krabka/core";
import type { Deadline } from "./deadline.js";
import type { NativeError } from "./native-binding.js";
import { codeOf, errorOf, refusesMint, TIMED_OUT } from "./native-errors.js";
import type { ProducerInstance } from "./producer-instance.js";

/** librdkafka logs this when InitProducerId failed and it is about to repeat it. */
const REPEATING = "GETPID";
/** librdkafka goes on by itself between these slices; they only hold a thread for a short time each. */
const SLICE_MS = 5;
const QUICK_SLICES = 20;
const PAUSE_MS = 20;

/**
 * - `not-sent`: `mayMint` said no; the producer is as good as before.
 * - `not-yet`: the coordinator is not ready and did nothing; the producer is of no use, since it would repeat the request.
 */
export type Minted = { readonly pair: ProducerPair } | "not-sent" | "not-yet";

/**
 * Mints under a new, connected producer.
 *
 * librdkafka repeats an InitProducerId that failed, on a state that may be old by then. So this stops at the first failure,
 * and counts the requests: a mint that took more than one is not used.
 *
 * @throws {KrabkaError} as `Transport.openSession`; the producer is of no use after that.
 */
export const mint = async (
  producer: ProducerInstance,
  role: Role,
  mayMint: () => boolean,
  deadline: Deadline,
): Promise<Minted> => {
  let repeating = false;
  const stopListening = producer.onLog((facility) => {
    if (facility === REPEATING) repeating = true;
  });
  try {
    return await producer.whileBusy(() => initialise(producer, role, mayMint, () => repeating, deadline));
  } finally {
    stopListening();
  }
};

const initialise = async (
  producer: ProducerInstance,
  role: Role,
  mayMint: () => boolean,
  isRepeating: () => boolean,
  deadline: Deadline,
): Promise<Minted> => {
  let repeating = false;
  for (let slice = 0; ; slice++) {
    const lane = slice < QUICK_SLICES ? "quick" : "patient";
    const mayBegin = slice === 0 ? mayMint : () => true;
    const answer = await producer.initTransactions(lane, SLICE_MS, deadline, mayBegin);
    if (answer === undefined) return "not-sent";
    if (answer.ok) return { pair: await pairOf(producer, role, deadline) };
    const { error } = answer;
    if (refusesMint(codeOf(error))) return "not-yet";
    if (codeOf(error) !== TIMED_OUT) throw mintError(error, role);
    if (repeating) throw unanswered(role, "its connection to the coordinator ended");
    // The next answer tells for what reason the request failed.
    repeating = isRepeating();
    if (repeating) continue;
    deadline.throwIfEnded();
    if (slice < QUICK_SLICES) continue;
    const sent = (producer.latestStatistics?.sent("InitProducerId") ?? 0) > 0;
    if (!sent && !mayMint()) throw unanswered(role, "the coordinator was not reached while the role's state was fresh");
    await deadline.pause(PAUSE_MS);
  }
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

const mintError = (error: NativeError, role: Role): KrabkaError => {
  const known = errorOf(error, `Minting for role ${JSON.stringify(role)}`);
  // Another InitProducerId for the role came in between: the role is to be read again.
  return known.code === "FENCED" ? new KrabkaError("BUSY", known.message, { role, cause: error }) : known;
};

const unanswered = (role: Role, why: string): KrabkaError =>
  new KrabkaError("UNREACHABLE", `Whether the mint for role ${JSON.stringify(role)} happened is not known: ${why}`, {
    role,
  });
