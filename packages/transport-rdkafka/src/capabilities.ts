import type { Capability, TransportCapabilities } from "@krabka/core";

/** Why this backend lacks something: what `capabilities` and the warnings of `prepare` say, and what the README's table says. */
export const UNSUPPORTED_REASONS = {
  fencedAppend: "librdkafka produces under a transactional producer's pair only inside a transaction",
  conditionalRemint: "librdkafka does not let a caller send InitProducerId with its own pair",
  describe: "librdkafka has no DescribeTransactions; pass a describer",
  uncommittedReads: "node-rdkafka does not tell which of the records that it reads belong to an open transaction",
  binaryHeaders: "node-rdkafka makes a string of every header value",
  topicSettings: "node-rdkafka has no DescribeConfigs; pass a describer",
} as const satisfies Record<keyof TransportCapabilities | "topicSettings", string>;

const lacking = (name: keyof TransportCapabilities): Capability => ({
  supported: false,
  reason: UNSUPPORTED_REASONS[name],
});

export const capabilitiesWith = (options: { readonly describer: boolean }): TransportCapabilities => ({
  fencedAppend: lacking("fencedAppend"),
  conditionalRemint: lacking("conditionalRemint"),
  describe: options.describer ? { supported: true } : lacking("describe"),
  uncommittedReads: lacking("uncommittedReads"),
  binaryHeaders: lacking("binaryHeaders"),
});
