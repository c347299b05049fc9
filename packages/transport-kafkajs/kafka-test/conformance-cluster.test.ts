import { describeTransport } from "@krabka/testing/conformance";
import { THREE_BROKERS } from "./kafka-harness.js";
import { startHarness } from "./kafkajs-harness.js";

describeTransport({
  name: "kafkajs on three brokers with lease records as appends",
  missing: {},
  unsupported: {},
  start: () => startHarness("append", THREE_BROKERS),
});
