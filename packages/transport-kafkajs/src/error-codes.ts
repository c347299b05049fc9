import { type ErrorCode, FencedError, KrabkaError } from "@krabka/core";

/**
 * What an error code of the protocol means for the request that it answers.
 *
 * - `moved`: another broker leads or coordinates; nothing happened here. Look it up again.
 * - `busy`: nothing happened; the same request may work soon.
 * - `doubtful`: it may have happened; the same request may be repeated.
 * - `fenced`: the pair is dead.
 * - `refused-transaction`: this transaction is over without a commit, and the pair should be renewed.
 * - `refused`: nothing happened, and repeating does not help.
 * - `unknown`: a code that is not in the table, or one that says nothing.
 */
export type CodeMeaning = "moved" | "busy" | "doubtful" | "fenced" | "refused-transaction" | "refused" | "unknown";

interface Entry {
  readonly name: string;
  readonly meaning: CodeMeaning;
  /** The code of the error that a caller gets for it. */
  readonly error: ErrorCode;
}

const entry = (name: string, meaning: CodeMeaning, error: ErrorCode): Entry => ({ name, meaning, error });

// Numbers and names: Kafka's Errors.java. Codes of consumer groups, ACLs and quorums cannot answer what is asked here.
const TABLE: Readonly<Record<number, Entry>> = {
  [-1]: entry("UNKNOWN_SERVER_ERROR", "unknown", "UNREACHABLE"),
  1: entry("OFFSET_OUT_OF_RANGE", "refused", "UNREACHABLE"),
  2: entry("CORRUPT_MESSAGE", "doubtful", "UNREACHABLE"),
  3: entry("UNKNOWN_TOPIC_OR_PARTITION", "refused", "UNKNOWN_TOPIC"),
  5: entry("LEADER_NOT_AVAILABLE", "moved", "UNREACHABLE"),
  6: entry("NOT_LEADER_OR_FOLLOWER", "moved", "UNREACHABLE"),
  7: entry("REQUEST_TIMED_OUT", "doubtful", "UNREACHABLE"),
  8: entry("BROKER_NOT_AVAILABLE", "moved", "UNREACHABLE"),
  9: entry("REPLICA_NOT_AVAILABLE", "moved", "UNREACHABLE"),
  10: entry("MESSAGE_TOO_LARGE", "refused", "INVALID_ARGUMENT"),
  13: entry("NETWORK_EXCEPTION", "doubtful", "UNREACHABLE"),
  14: entry("COORDINATOR_LOAD_IN_PROGRESS", "busy", "UNREACHABLE"),
  // Also what the coordinator says when its own log did not take the change in time, which may still be there later.
  15: entry("COORDINATOR_NOT_AVAILABLE", "moved", "UNREACHABLE"),
  16: entry("NOT_COORDINATOR", "moved", "UNREACHABLE"),
  17: entry("INVALID_TOPIC_EXCEPTION", "refused", "INVALID_ARGUMENT"),
  18: entry("RECORD_LIST_TOO_LARGE", "refused", "INVALID_ARGUMENT"),
  19: entry("NOT_ENOUGH_REPLICAS", "busy", "UNREACHABLE"),
  20: entry("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "doubtful", "UNREACHABLE"),
  21: entry("INVALID_REQUIRED_ACKS", "refused", "UNSUPPORTED"),
  29: entry("TOPIC_AUTHORIZATION_FAILED", "refused", "UNAUTHORIZED"),
  30: entry("GROUP_AUTHORIZATION_FAILED", "refused", "UNAUTHORIZED"),
  31: entry("CLUSTER_AUTHORIZATION_FAILED", "refused", "UNAUTHORIZED"),
  32: entry("INVALID_TIMESTAMP", "refused", "INVALID_ARGUMENT"),
  33: entry("UNSUPPORTED_SASL_MECHANISM", "refused", "UNAUTHORIZED"),
  34: entry("ILLEGAL_SASL_STATE", "refused", "UNAUTHORIZED"),
  35: entry("UNSUPPORTED_VERSION", "refused", "UNSUPPORTED"),
  36: entry("TOPIC_ALREADY_EXISTS", "refused", "TOPIC_MISCONFIGURED"),
  37: entry("INVALID_PARTITIONS", "refused", "INVALID_ARGUMENT"),
  38: entry("INVALID_REPLICATION_FACTOR", "refused", "TOPIC_MISCONFIGURED"),
  40: entry("INVALID_CONFIG", "refused", "TOPIC_MISCONFIGURED"),
  41: entry("NOT_CONTROLLER", "moved", "UNREACHABLE"),
  42: entry("INVALID_REQUEST", "refused", "UNSUPPORTED"),
  43: entry("UNSUPPORTED_FOR_MESSAGE_FORMAT", "refused", "UNSUPPORTED"),
  44: entry("POLICY_VIOLATION", "refused", "TOPIC_MISCONFIGURED"),
  45: entry("OUT_OF_ORDER_SEQUENCE_NUMBER", "refused-transaction", "NOT_COMMITTED"),
  // Brokers answer a repeated batch with its first offset; a batch older than their memory of five gets 45.
  46: entry("DUPLICATE_SEQUENCE_NUMBER", "unknown", "UNKNOWN_OUTCOME"),
  47: entry("INVALID_PRODUCER_EPOCH", "fenced", "FENCED"),
  48: entry("INVALID_TXN_STATE", "refused-transaction", "NOT_COMMITTED"),
  49: entry("INVALID_PRODUCER_ID_MAPPING", "fenced", "FENCED"),
  50: entry("INVALID_TRANSACTION_TIMEOUT", "refused", "INVALID_ARGUMENT"),
  51: entry("CONCURRENT_TRANSACTIONS", "busy", "BUSY"),
  52: entry("TRANSACTION_COORDINATOR_FENCED", "moved", "UNREACHABLE"),
  53: entry("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "refused", "UNAUTHORIZED"),
  54: entry("SECURITY_DISABLED", "refused", "UNSUPPORTED"),
  55: entry("OPERATION_NOT_ATTEMPTED", "refused", "NOT_COMMITTED"),
  56: entry("KAFKA_STORAGE_ERROR", "moved", "UNREACHABLE"),
  58: entry("SASL_AUTHENTICATION_FAILED", "refused", "UNAUTHORIZED"),
  59: entry("UNKNOWN_PRODUCER_ID", "refused-transaction", "NOT_COMMITTED"),
  65: entry("DELEGATION_TOKEN_AUTHORIZATION_FAILED", "refused", "UNAUTHORIZED"),
  72: entry("LISTENER_NOT_FOUND", "moved", "UNREACHABLE"),
  74: entry("FENCED_LEADER_EPOCH", "moved", "UNREACHABLE"),
  75: entry("UNKNOWN_LEADER_EPOCH", "busy", "UNREACHABLE"),
  76: entry("UNSUPPORTED_COMPRESSION_TYPE", "refused", "UNSUPPORTED"),
  78: entry("OFFSET_NOT_AVAILABLE", "busy", "UNREACHABLE"),
  87: entry("INVALID_RECORD", "refused", "INVALID_ARGUMENT"),
  88: entry("UNSTABLE_OFFSET_COMMIT", "busy", "UNREACHABLE"),
  89: entry("THROTTLING_QUOTA_EXCEEDED", "busy", "UNREACHABLE"),
  90: entry("PRODUCER_FENCED", "fenced", "FENCED"),
  91: entry("RESOURCE_NOT_FOUND", "refused", "UNKNOWN_TOPIC"),
  100: entry("UNKNOWN_TOPIC_ID", "moved", "UNREACHABLE"),
  103: entry("INCONSISTENT_TOPIC_ID", "moved", "UNREACHABLE"),
  105: entry("TRANSACTIONAL_ID_NOT_FOUND", "refused", "FENCED"),
  106: entry("FETCH_SESSION_TOPIC_ID_ERROR", "moved", "UNREACHABLE"),
  120: entry("TRANSACTION_ABORTABLE", "refused-transaction", "NOT_COMMITTED"),
};

export const NONE = 0;
export const OFFSET_OUT_OF_RANGE = 1;
export const UNKNOWN_TOPIC_OR_PARTITION = 3;
export const TOPIC_ALREADY_EXISTS = 36;
export const INVALID_TXN_STATE = 48;
export const INVALID_TRANSACTION_TIMEOUT = 50;
export const CONCURRENT_TRANSACTIONS = 51;
export const TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53;
export const OPERATION_NOT_ATTEMPTED = 55;
export const TRANSACTIONAL_ID_NOT_FOUND = 105;

export const meaningOf = (code: number): CodeMeaning => TABLE[code]?.meaning ?? "unknown";

/** Name and number, for messages. */
export const nameOf = (code: number): string => `${TABLE[code]?.name ?? "unknown code"} (${code})`;

/** An ACL as operators name it. Read and Write include Describe (Kafka's AclEntry). */
export const onTopic = (operation: string, topic: string): string => `${operation} on topic ${JSON.stringify(topic)}`;

/** An ACL on what the protocol knows a role as. */
export const onRole = (operation: string, role: string): string =>
  `${operation} on transactional id ${JSON.stringify(role)}`;

export interface ErrorContext {
  /** The broker's own words. */
  readonly detail?: string | null | undefined;
  /** The ACL that the request takes. */
  readonly right?: string | undefined;
  readonly role?: string | undefined;
}

/** The error for a caller whose request was answered with `code`. */
export const errorOf = (code: number, what: string, { detail, right, role }: ErrorContext = {}): KrabkaError => {
  const error = TABLE[code]?.error ?? "UNREACHABLE";
  const wanted = error === "UNAUTHORIZED" && right !== undefined ? `; wanted: the right ${right}` : "";
  const message = `${what}: the broker answered ${nameOf(code)}${detail ? `, ${detail.replace(/\.$/, "")}` : ""}${wanted}`;
  return error === "FENCED" ? new FencedError(message, { role }) : new KrabkaError(error, message, { role });
};
