// For tools that measure or inspect the protocol below the transport. Follows the protocol, not semantic versioning.
export { ClusterMap } from "./cluster-map.js";
export { decompress } from "./decompress.js";
export { openWire } from "./kafkajs-internals.js";
export { systemClock } from "./system-clock.js";
export { FETCH, INIT_PRODUCER_ID, PRODUCE } from "./wire/api.js";
export { decodeFetch, decodeProduce, encodeFetch, encodeProduce } from "./wire/log-requests.js";
export { decodeBatches, encodeBatch } from "./wire/record-batch.js";
export { decodeInitProducerId, encodeInitProducerId } from "./wire/transaction-requests.js";
export type { Wire } from "./wire-connection.js";
