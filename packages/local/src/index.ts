// For users.

export { LocalError, type LocalErrorCode, type LocalErrorDetails, type Place } from "./errors.js";
// For hosts that bring their own log or disk.
export type { Checkpoint, DurableLog, LogRecord, LogStatus } from "./log/durable-log.js";
export { FileLog, type FileLogOptions } from "./log/file-log.js";
export type { DirectoryLock, LogFile, LogFileSystem } from "./log/file-system.js";
