export type { KafkaBroker, WaitOptions } from "./broker.js";
export { DEFAULT_KAFKA_VERSION, type KafkaCluster, type StartKafkaOptions, startKafka } from "./cluster.js";
export { connectOrStart } from "./connect.js";
export {
  type FaultProxy,
  type RunningFaultProxy,
  type StartFaultProxyOptions,
  startFaultProxy,
} from "./fault-proxy.js";
export type { FaultAction, FaultHandle, FaultRule, ProxiedRequest } from "./fault-rules.js";
export { kafkaClassPath } from "./jars.js";
export { findJava } from "./java.js";
export { coordinatorOf, leaderOf, moveCoordinator, moveLeader, type PartitionName } from "./leaders.js";
export type { SecureAccess, SecurityOptions } from "./security.js";
