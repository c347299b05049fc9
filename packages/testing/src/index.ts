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
export { CLIENT_APIS, everyFault, faultAt, PASSING_CODES, showFault } from "./simulation/every-fault.js";
export { SeededRandom } from "./simulation/seeded-random.js";
export {
  type Invariant,
  SEED_VARIABLE,
  SEEDS_VARIABLE,
  type SimulatedEvent,
  Simulation,
  SimulationFailure,
  type SimulationOptions,
  seedsToRun,
} from "./simulation/simulation.js";
export { Trace } from "./simulation/trace.js";
export { FakeTransport, type FakeTransportOptions } from "./transport/fake-transport.js";
