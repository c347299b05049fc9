import { brokerTrials } from "./brokers.js";
import { burstTrials } from "./bursts.js";
import { callTrials } from "./calls.js";
import { codeTrials } from "./codes.js";
import { leaderMoveTrials } from "./leader-moves.js";
import { outageTrials } from "./outages.js";
import { outcomeTrials } from "./outcomes.js";
import { termTrials } from "./terms.js";
import { transactionTimeoutTrials } from "./transaction-timeouts.js";
import { declareTrials, type MakeTransport, type Trial } from "./trial.js";

/** The trials whose bodies fit any transport that can do all. */
export const sharedTrials: readonly Trial[] = [
  ...termTrials,
  ...outcomeTrials,
  ...brokerTrials,
  ...callTrials,
  ...codeTrials,
  ...transactionTimeoutTrials,
  ...outageTrials,
  ...leaderMoveTrials,
  ...burstTrials,
];

export const describeTrials = (name: string, makeTransport: MakeTransport): void =>
  declareTrials(name, makeTransport, sharedTrials);
