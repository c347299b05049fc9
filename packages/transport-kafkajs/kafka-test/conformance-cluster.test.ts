import { describeTransport } from "@krabka/testing/conformance";
import { startHarness } from "./kafka-harness.js";

describeTransport({
  name: "kafkajs on three brokers with lease records as appends",
  missing: {},
  unsupported: {},
  start: () =>
    startHarness("append", {
      brokers: 3,
      settings: {
        // Longer than any test leaves a role alone without meaning to.
        "transactional.id.expiration.ms": "6000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
      },
    }),
});
