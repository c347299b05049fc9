import { Backoff, type Deadline, type ErrorCode, KrabkaError, type Role } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import { CONCURRENT_TRANSACTIONS, meaningOf } from "./error-codes.js";
import type { Api } from "./wire/api.js";
import type { ByteReader } from "./wire/byte-reader.js";
import type { Lane } from "./wire-connection.js";

/** What became of one request: its answer, or none and whether it may have reached the broker. */
export type Exchanged<T> =
  | { readonly answered: true; readonly answer: T }
  | { readonly answered: false; readonly sent: boolean; readonly error: Error };

const asError = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(String(thrown)));

/** A broker that is silent for less than this is not given up, however short a call's limit is. */
const SHORTEST_SILENCE_MS = 1000;

/** Sends once and never rejects: for writes, an error alone does not tell whether something happened. */
export async function exchange<T>(
  map: ClusterMap,
  nodeId: number,
  lane: Lane,
  request: { readonly api: Api; readonly encode: () => Uint8Array; readonly decode: (from: ByteReader) => T },
  deadline: Deadline,
): Promise<Exchanged<T>> {
  let sent = false;
  const encode = (): Uint8Array => {
    const bytes = request.encode();
    sent = true;
    return bytes;
  };
  try {
    // Half of what is left, so that a lost answer can still be settled by a second attempt.
    const timeoutMs = Math.min(map.requestTimeoutMs, Math.max(SHORTEST_SILENCE_MS, deadline.remainingMs / 2));
    const answer = await map.ask(nodeId, lane, { api: request.api, encode }, deadline, timeoutMs);
    return { answered: true, answer: request.decode(answer) };
  } catch (thrown) {
    return { answered: false, sent, error: asError(thrown) };
  }
}

/** The steps in which `CONCURRENT_TRANSACTIONS` is retried: the markers of a transaction take about a millisecond. */
export class MarkerBackoff {
  readonly #later = new Backoff(5, 50);
  #step = 0;

  next(): number {
    this.#step += 1;
    return this.#step <= 8 ? Math.ceil(this.#step / 2) : this.#later.next();
  }
}

/** How a request to the role's coordinator ended after as many attempts as the time limit allowed. */
export interface CoordinatorResult<T> {
  /** The answer, or undefined when the call ended first. */
  readonly answer: T | undefined;
  /** Why there is no answer. */
  readonly error: Error | undefined;
  /** An attempt was sent and not answered: it may still arrive. */
  readonly lost: boolean;
  /** An attempt was answered in a way that leaves open whether it took effect. */
  readonly doubtful: boolean;
}

const ENDS_AT_ONCE: readonly ErrorCode[] = ["CLOSED", "UNAUTHORIZED", "UNSUPPORTED", "ABORTED", "TIMEOUT"];

export const endsAtOnce = (error: Error): boolean => KrabkaError.is(error) && ENDS_AT_ONCE.includes(error.code);

/**
 * Asks the coordinator of `role` until it gives an answer that stands. Only for requests that may be repeated.
 *
 * `codeOf` names the code that decides; 51 is repeated too, since it stands for a state that passes.
 */
export async function askCoordinator<T>(
  map: ClusterMap,
  role: Role,
  request: { readonly api: Api; readonly encode: () => Uint8Array; readonly decode: (from: ByteReader) => T },
  codeOf: (answer: T) => number,
  deadline: Deadline,
): Promise<CoordinatorResult<T>> {
  const concurrent = new MarkerBackoff();
  const backoff = new Backoff(5, 100);
  let lost = false;
  let doubtful = false;
  let last: Error | undefined;
  for (;;) {
    try {
      const nodeId = await map.coordinatorOf(role, deadline);
      const exchanged = await exchange(map, nodeId, "write", request, deadline);
      if (!exchanged.answered) {
        lost ||= exchanged.sent;
        last = exchanged.error;
        if (endsAtOnce(last)) return { answer: undefined, error: last, lost, doubtful };
        map.forgetCoordinator(role);
        await deadline.pause(backoff.next());
        continue;
      }
      const { answer } = exchanged;
      const code = codeOf(answer);
      if (code === CONCURRENT_TRANSACTIONS) {
        await deadline.pause(concurrent.next());
        continue;
      }
      const meaning = meaningOf(code);
      if (meaning !== "moved" && meaning !== "busy" && meaning !== "doubtful") {
        return { answer, error: undefined, lost, doubtful };
      }
      // A coordinator whose own log did not take the change in time says NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE,
      // although the change may be in that log and may stand after all.
      if (meaning !== "busy") doubtful = true;
      if (meaning === "moved") map.forgetCoordinator(role);
      await deadline.pause(backoff.next());
    } catch (thrown) {
      return { answer: undefined, error: last ?? asError(thrown), lost, doubtful };
    }
  }
}
