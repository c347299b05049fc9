import { brokerTrials } from "../../client/kafka-test/trials/brokers.js";
import { callTrials } from "../../client/kafka-test/trials/calls.js";
import { codeTrials } from "../../client/kafka-test/trials/codes.js";
import { leaderMoveTrials } from "../../client/kafka-test/trials/leader-moves.js";
import { outageTrials } from "../../client/kafka-test/trials/outages.js";
import { outcomeTrials } from "../../client/kafka-test/trials/outcomes.js";
import { termTrials } from "../../client/kafka-test/trials/terms.js";
import { transactionTimeoutTrials } from "../../client/kafka-test/trials/transaction-timeouts.js";
import { declareTrials } from "../../client/kafka-test/trials/trial.js";
import { RdKafkaTransport } from "../src/index.js";
import { termEndingTrials } from "./term-ending-trials.js";

/** Trials whose shared bodies do not fit this transport, and where it is tried instead. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  A1: "session.test.ts: librdkafka does not take a sequence number back when the broker refused its record, so the next write to that partition ends the term",
  A12: "mixed.test.ts: a deposed member's first write within a lease of a second may end as UNKNOWN_OUTCOME here, since librdkafka needs that long to see that its connections are dead",
  B2: "term-ending-trials.ts: conditionalRemint is missing",
  B4: "term-ending-trials.ts: conditionalRemint is missing",
};

const shared = [
  ...termTrials,
  ...outcomeTrials,
  ...brokerTrials,
  ...callTrials,
  ...codeTrials,
  ...transactionTimeoutTrials,
  ...outageTrials,
  ...leaderMoveTrials,
];

declareTrials(
  "rdkafka",
  ({ bootstrap, clientId, requestTimeoutMs }) => {
    const brokers = {
      "bootstrap.servers": bootstrap,
      "client.id": clientId,
      // So that records that are too large are the broker's to refuse.
      "message.max.bytes": 10_000_000,
    };
    return new RdKafkaTransport({ brokers, requestTimeoutMs });
  },
  [...shared.filter(({ title }) => ELSEWHERE[title.split(":")[0] ?? ""] === undefined), ...termEndingTrials],
);
