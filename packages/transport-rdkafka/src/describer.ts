import type { Transport } from "@krabka/core";

/**
 * Does what librdkafka can't: asks the coordinator for a role's pair, and checks the coordination topic's settings. Such as a
 * `KafkaJsTransport` for the same topic. Whoever made it closes it.
 */
export type Describer = Pick<Transport, "describe" | "prepare">;
