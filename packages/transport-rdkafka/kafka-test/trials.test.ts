import { sharedTrials } from "../../client/kafka-test/trials/describe-trials.js";
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
  [...sharedTrials.filter(({ title }) => ELSEWHERE[title.split(":")[0] ?? ""] === undefined), ...termEndingTrials],
);
