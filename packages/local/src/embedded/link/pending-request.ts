import type { BrokerAnswer, BrokerRequest } from "../broker/request.js";
import { encodeRequest } from "../broker/request-codec.js";

/** No answer will come, and what became of the request can't be learned. */
export class AnswerLost extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "AnswerLost";
  }
}

/**
 * - `waiting`: for a way to the broker, or for its answer.
 * - `abandoned`: nobody waits for it, and it is not sent again; but it may have taken effect.
 * - `over`: answered, lost, or never sent.
 */
type State = "waiting" | "abandoned" | "over";

/** A request with its id, from the call until its fate is known. */
export class PendingRequest {
  readonly sequence: bigint;
  readonly bytes: Uint8Array;
  /** Rejects with `AnswerLost`, or with the reason for which it could not be sent at all. */
  readonly answer: Promise<BrokerAnswer>;
  /** An answer to it may have been lost on the way. */
  isRepeated = false;
  isUnknowable = false;
  readonly #onForget: () => void;
  readonly #resolve: (answer: BrokerAnswer) => void;
  readonly #reject: (error: Error) => void;
  #state: State = "waiting";
  #isSent = false;

  constructor(sequence: bigint, request: BrokerRequest, onForget: () => void) {
    this.sequence = sequence;
    this.bytes = encodeRequest(request);
    this.#onForget = onForget;
    let settle: { resolve: (answer: BrokerAnswer) => void; reject: (error: Error) => void } | undefined;
    this.answer = new Promise((resolve, reject) => {
      settle = { resolve, reject };
    });
    this.#resolve = (answer) => settle?.resolve(answer);
    this.#reject = (error) => settle?.reject(error);
    // Whoever waits is told.
    this.answer.catch(() => undefined);
  }

  /** Whether it may have reached the broker. */
  get isSent(): boolean {
    return this.#isSent;
  }

  get isWaiting(): boolean {
    return this.#state === "waiting";
  }

  sending(): void {
    this.isRepeated = this.#isSent;
    this.#isSent = true;
  }

  /** The broker did not take it when it was sent: as new, unless it had been sent before. */
  notTaken(): void {
    if (!this.isRepeated) this.#isSent = false;
  }

  answered(answer: BrokerAnswer): void {
    // The answer to an abandoned one comes too late: its fate is settled by the next epoch.
    if (this.#state !== "waiting") return;
    this.#state = "over";
    this.#onForget();
    this.#resolve(answer);
  }

  lost(error: Error): void {
    if (this.#state !== "waiting") return;
    this.#state = this.#isSent ? "abandoned" : "over";
    if (!this.#isSent) this.#onForget();
    this.#reject(error);
  }

  /** The broker forgot this client, so nobody can tell any more what became of the request. */
  lostForGood(error: AnswerLost): void {
    this.isUnknowable = true;
    this.lost(error);
  }

  /** The caller's time is up. */
  abandon(): void {
    this.lost(new AnswerLost("The caller no longer waits"));
  }

  /** Its fate no longer matters: the broker need not remember its answer, and refuses it should it still arrive. */
  forget(): void {
    this.#state = "over";
    this.#onForget();
  }
}
