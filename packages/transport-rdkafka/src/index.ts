// For users.
export { UNSUPPORTED_REASONS } from "./capabilities.js";
export type { RdKafkaConfig } from "./native-binding.js";
export type { TopicSettings } from "./topic-setup.js";
export { type Describer, type Logger, RdKafkaTransport, type RdKafkaTransportOptions } from "./transport.js";
