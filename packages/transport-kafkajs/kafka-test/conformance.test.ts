import { describeTransport } from "@krabka/testing/conformance";
import { startHarness } from "./kafka-harness.js";

const missing = {
  moveLeader: "one broker",
  moveCoordinator: "one broker",
  forgetRole: "the coordinator forgets by itself, after days",
};

describeTransport({
  name: "kafkajs with lease records as appends",
  missing,
  unsupported: {},
  start: () => startHarness("append"),
});

describeTransport({
  name: "kafkajs with lease records as transactions",
  missing,
  unsupported: { fencedAppend: "switched off" },
  start: () => startHarness("transaction"),
});
