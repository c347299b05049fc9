// For users.
export {
  DEFAULT_TOPIC,
  KafkaJsTransport,
  type KafkaJsTransportOptions,
  type LeaseRecords,
  type TransportLogger,
} from "./transport.js";
