import { describeTransport } from "@krabka/testing/conformance";
import { THREE_BROKERS } from "../../transport-kafkajs/kafka-test/kafka-harness.js";
import { UNSUPPORTED_REASONS } from "../src/index.js";
import { startHarness } from "./rdkafka-harness.js";

const { fencedAppend, conditionalRemint, uncommittedReads, binaryHeaders } = UNSUPPORTED_REASONS;

describeTransport({
  name: "rdkafka on three brokers",
  missing: {},
  unsupported: { fencedAppend, conditionalRemint, uncommittedReads, binaryHeaders },
  start: () => startHarness(THREE_BROKERS),
});
