import type { KrabkaError } from "@krabka/core";
import type { BrokerAnswer, BrokerRequest } from "../broker/request.js";
import { AnswerLost, PendingRequest } from "./pending-request.js";
import type { BrokerPort } from "./port.js";

/** The requests of one client whose fate is still of interest, in the order of their ids. */
export class RequestLedger {
  readonly #requests = new Map<bigint, PendingRequest>();
  /** Those that are not sent again. */
  readonly #once = new Set<PendingRequest>();
  #nextSequence = 1n;

  add(request: BrokerRequest): PendingRequest {
    const sequence = this.#nextSequence++;
    const pending: PendingRequest = new PendingRequest(sequence, request, () => {
      this.#requests.delete(sequence);
      this.#once.delete(pending);
    });
    this.#requests.set(sequence, pending);
    return pending;
  }

  /** A lost answer to it is not asked for again. */
  sendOnly(pending: PendingRequest): void {
    this.#once.add(pending);
  }

  send(pending: PendingRequest, port: BrokerPort): void {
    pending.sending();
    port.request(pending.sequence, this.#acked, pending.bytes);
  }

  answered(sequence: bigint, answer: BrokerAnswer): void {
    this.#requests.get(sequence)?.answered(answer);
  }

  /** The broker took nothing that is still unanswered over the present connection. */
  notTaken(): void {
    for (const pending of this.#requests.values()) pending.notTaken();
  }

  /** The connection broke. */
  interrupted(error: Error): void {
    for (const pending of [...this.#once]) {
      pending.lost(new AnswerLost("The connection broke before the answer", error));
    }
  }

  /** Sends what is still waited for. @param isKnown Whether the broker remembers what this client sent before. */
  resend(port: BrokerPort, isKnown: boolean): void {
    for (const pending of [...this.#requests.values()]) {
      if (pending.isSent && !isKnown) pending.lostForGood(new AnswerLost("The broker does not remember this client"));
      else if (pending.isWaiting) this.send(pending, port);
    }
  }

  /** Ends those that were never sent. */
  refuseUnsent(error: KrabkaError): void {
    for (const pending of [...this.#requests.values()]) if (!pending.isSent) pending.lost(error);
  }

  close(closed: KrabkaError): void {
    this.refuseUnsent(closed);
    for (const pending of [...this.#requests.values()]) {
      pending.lost(new AnswerLost(closed.message, closed));
    }
  }

  /** Up to this id, nobody will ask for an answer again. */
  get #acked(): bigint {
    const [oldest = this.#nextSequence] = this.#requests.keys();
    return oldest - 1n;
  }
}
