import { describeTransport } from "@krabka/testing/conformance";
import { UNSUPPORTED_REASONS } from "../src/index.js";
import { startHarness } from "./rdkafka-harness.js";

const { fencedAppend, conditionalRemint, uncommittedReads, binaryHeaders } = UNSUPPORTED_REASONS;

describeTransport({
  name: "rdkafka",
  missing: {
    moveLeader: "one broker; see conformance-cluster.test.ts",
    moveCoordinator: "one broker; see conformance-cluster.test.ts",
    forgetRole: "this broker forgets after days; see conformance-cluster.test.ts",
  },
  unsupported: { fencedAppend, conditionalRemint, uncommittedReads, binaryHeaders },
  start: () => startHarness(),
});
