// For users: tests of code that runs on Krabka.
export { FakeCluster, type FakeClusterOptions } from "./cluster/fake-cluster.js";
export {
  type FakeCall,
  type FaultAction,
  type FaultRule,
  Faults,
  type InjectedFault,
} from "./cluster/faults.js";
// For authors of transports and tools.
export { type LogLimits, PartitionLog } from "./cluster/partition-log.js";
export {
  type AbortedTransaction,
  type Answer,
  type ApiName,
  type Apis,
  type Ask,
  ConnectionLostError,
  type Isolation,
  KafkaCode,
  type PartitionRef,
  type ProduceBatch,
  type Refusal,
  type StoredBatch,
  type StoredRecord,
  type TopicSettings,
  type TransactionAsk,
  type TransactionState,
} from "./cluster/protocol.js";
export { ManualClock, type ManualClockOptions } from "./manual-clock.js";
export { FakeTransport, type FakeTransportOptions } from "./transport/fake-transport.js";
