// For users.
export { UNSUPPORTED_REASONS } from "./capabilities.js";
export type { Describer } from "./describer.js";
export type { RdKafkaConfig } from "./native-binding.js";
export { type Logger, RdKafkaTransport, type RdKafkaTransportOptions } from "./transport.js";
