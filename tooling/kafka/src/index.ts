export type { KafkaBroker, WaitOptions } from "./broker.js";
export { DEFAULT_KAFKA_VERSION, type KafkaCluster, type StartKafkaOptions, startKafka } from "./cluster.js";
