import { describeTransport } from "@krabka/testing/conformance";
import { startHarness } from "./kafkajs-harness.js";

const missing = {
  moveLeader: "one broker; see conformance-cluster.test.ts",
  moveCoordinator: "one broker; see conformance-cluster.test.ts",
  forgetRole: "this broker forgets after days; see conformance-cluster.test.ts",
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
