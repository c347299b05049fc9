// For users.

export { DuplicateMemberError, type ErrorCode, type ErrorDetails, FencedError, KrabkaError } from "./errors.js";
export { FenceGate, type FenceStore, TOKEN_HEADER } from "./fence-gate.js";
export { FencingToken, type FencingTokenJson, type ProducerPair, samePair } from "./fencing-token.js";
export { DEFAULT_LEASE_MS, LeaseConfig, type LeaseOptions, MIN_LEASE_MS } from "./lease-config.js";
export { MAX_NAME_BYTES, MemberId, Role } from "./names.js";
export type { Attributes } from "./record.js";
export { type HeldLease, RoleState, type RosterEntry } from "./role-state.js";
export { type Decision, Succession } from "./succession.js";

// For authors of transports and tools.

export { Backoff } from "./backoff.js";
export { CallQueue } from "./call-queue.js";
export { type Clock, MAX_TIMER_MS, type Timer } from "./clock.js";
export {
  ATTRIBUTES_HEADER,
  decodeEntry,
  encodeAttributes,
  encodeEntry,
  MAX_ATTRIBUTES_BYTES,
  roleOfKey,
  TERM_HEADER,
} from "./codec.js";
export { type Awaited, Deadline } from "./deadline.js";
export { MAX_EPOCH, MAX_INT64, MIN_INT64 } from "./fencing-token.js";
export { DEFAULT_PARTITIONS, murmur2, partitionForKey, partitionForRecord, partitionForRole } from "./partitioner.js";
export {
  type CoordinationEntry,
  type CoordinationRecord,
  type Header,
  type Lease,
  type LeaseRemoved,
  NO_ATTRIBUTES,
  type RawRecord,
  type Registration,
  type RegistrationRemoved,
} from "./record.js";
export { stateKeyOf } from "./role-state.js";
export { coordinationTopicSettings } from "./topic-settings.js";
export type {
  AbortSignalLike,
  CallOptions,
  Capability,
  CoordinationTopic,
  DescribeOptions,
  FeedListener,
  OutgoingRecord,
  Prepared,
  ReadRecord,
  RecordPosition,
  RoleDescription,
  RoleFeed,
  SessionOptions,
  TopicPartition,
  Transport,
  TransportCapabilities,
  WriteOutcome,
  WriterSession,
} from "./transport.js";
export { decodeUtf8, encodeUtf8, utf8Length } from "./utf8.js";
