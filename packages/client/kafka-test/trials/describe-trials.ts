import { brokerTrials } from "./brokers.js";
import { callTrials } from "./calls.js";
import { outcomeTrials } from "./outcomes.js";
import { termTrials } from "./terms.js";
import { declareTrials, type MakeTransport } from "./trial.js";

export const describeTrials = (name: string, makeTransport: MakeTransport): void =>
  declareTrials(name, makeTransport, [...termTrials, ...outcomeTrials, ...brokerTrials, ...callTrials]);
