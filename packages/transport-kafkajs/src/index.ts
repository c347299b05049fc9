// For users.
export { DEFAULT_TOPIC, KafkaJsTransport, type KafkaJsTransportOptions, type LeaseRecords } from "./transport.js";
