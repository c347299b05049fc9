import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import { describeTrials } from "./describe-trials.js";

describeTrials(
  "kafkajs",
  ({ bootstrap, clientId, requestTimeoutMs }) =>
    new KafkaJsTransport({
      kafka: { brokers: bootstrap.split(","), clientId, logLevel: logLevel.NOTHING },
      requestTimeoutMs,
    }),
);
