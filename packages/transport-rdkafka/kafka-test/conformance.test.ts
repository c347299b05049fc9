import { describeTransport } from "@krabka/testing/conformance";
import { UNSUPPORTED_REASONS } from "../src/index.js";
import { startHarness } from "./kafka-harness.js";

const { fencedAppend, conditionalRemint, uncommittedReads, binaryHeaders } = UNSUPPORTED_REASONS;

describeTransport({
  name: "rdkafka",
  missing: {
    moveLeader: "one broker",
    moveCoordinator: "one broker",
    forgetRole: "the coordinator forgets by itself, after days",
  },
  unsupported: { fencedAppend, conditionalRemint, uncommittedReads, binaryHeaders },
  start: startHarness,
});
