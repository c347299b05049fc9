import type { FencingToken, ProducerPair, Role } from "@krabka/core";

/** What the transaction coordinator says about a role, as of one request. Anybody may ask; no membership is needed. */
export class LeadershipStatus {
  readonly role: Role;
  /** The pair whose writes the broker takes, or undefined if nobody ever led or the id expired. */
  readonly pair: ProducerPair | undefined;
  /** The coordinator's word for the role's transaction, such as `Empty`, `Ongoing` or `CompleteCommit`. */
  readonly transactionState: string;

  constructor(role: Role, pair: ProducerPair | undefined, transactionState: string) {
    this.role = role;
    this.pair = pair;
    this.transactionState = transactionState;
  }

  /**
   * Whether the coordinator takes writes under this very pair. True is certain as of the question; the term plays no part.
   *
   * False for a token out of the lease records of another implementation whose client raises the epoch with each commit
   * (EndTxn version 5, KIP-890), although its holder may lead: it has written under a later pair since. The coordinator's
   * answer after such a commit and after a takeover is the same, so nothing but the pair itself is proof. Ask for the
   * pair that the holder has now; to follow who leads, `observe`.
   */
  isAuthoritative(token: FencingToken): boolean {
    return this.pair !== undefined && this.pair.producerId === token.producerId && this.pair.epoch === token.epoch;
  }
}
