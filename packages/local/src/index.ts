// For users.

// For hosts that bring their own log or disk.
export type {
  ConnectOptions,
  EmbeddedStatus,
  EmbeddedTransportOptions,
  OpenOptions,
  OpenOrConnectOptions,
} from "./embedded/transport/embedded-options.js";
export { EmbeddedTransport } from "./embedded/transport/embedded-transport.js";
export type { TailStart, TopicRecord } from "./embedded/transport/topic-reader.js";
export { LocalError, type LocalErrorCode, type LocalErrorDetails, type Place } from "./errors.js";
export { LeaseKeeper, type LeaseKeeperOptions } from "./lease-keeper.js";
export type { ServiceOptions } from "./limits.js";
export type { Checkpoint, DurableLog, LogRecord, LogStatus } from "./log/durable-log.js";
export { FileLog } from "./log/file-log.js";
export type { FileLogOptions } from "./log/file-log-options.js";
export type { DirectoryLock, DurableFile, LogFile, LogFileSystem } from "./log/file-system.js";
export { LogBackedCoordinationService } from "./log-backed-service.js";
export { MemberKeeper, type MemberKeeperOptions } from "./member-keeper.js";
export {
  ABSENT,
  type CallOptions,
  type ChangeConditions,
  type ChangeResult,
  type Coordinate,
  type CoordinationService,
  type Lease,
  type LeaseResult,
  type Member,
  type MemberResult,
  type Reading,
  type ServiceStatus,
  type StepResult,
  type TransactResult,
} from "./service.js";
export type { LeaseCondition, MemberRefusal, Step } from "./state/command.js";
export type { MemberStatus } from "./state/model.js";
export type { Watch, WatchedKind, WatchFilter, WatchListener, WatchNotice } from "./watches.js";
