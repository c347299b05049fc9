// For users.
export {
  type Attributes,
  DuplicateMemberError,
  type ErrorCode,
  FencedError,
  FenceGate,
  type FenceStore,
  FencingToken,
  KrabkaError,
  type LeaseOptions,
  MemberId,
  Role,
  TOKEN_HEADER,
} from "@krabka/core";
export type { LeaderHandler } from "./campaign.js";
export { type AcquireOptions, type ClientOptions, CoordinationClient } from "./client.js";
export type { KrabkaEvents, Logger } from "./events.js";
export { Leadership, type TransactionScope, type Written } from "./leadership.js";
export { LeadershipStatus } from "./leadership-status.js";
export type { LimitOptions } from "./limits.js";
export type { Loss, LossReason } from "./loss.js";
export type { Observation } from "./role-observer.js";
// For authors of transports and tools.
export { systemClock } from "./system-clock.js";
export type { WriteRecord } from "./write.js";
