/** A request of the protocol in the one version that is spoken here. */
export interface Api {
  readonly name: string;
  readonly key: number;
  readonly version: number;
  /** Flexible versions (KIP-482) carry tagged fields, also in their headers. */
  readonly flexible: boolean;
}

const api = (name: string, key: number, version: number, flexible = false): Api => ({ name, key, version, flexible });

// Each version is the newest of the plain encoding that Kafka 3.9 to 4.x serve, unless stated.
export const PRODUCE = api("Produce", 0, 8);
/** 12 is the first that detects a truncated log from the epoch of the last batch read (KIP-595). */
export const FETCH = api("Fetch", 1, 12, true);
export const LIST_OFFSETS = api("ListOffsets", 2, 5);
export const METADATA = api("Metadata", 3, 8);
export const FIND_COORDINATOR = api("FindCoordinator", 10, 2);
export const API_VERSIONS = api("ApiVersions", 18, 0);
export const CREATE_TOPICS = api("CreateTopics", 19, 4);
/** 3 added the caller's own pair (KIP-360), 4 added the code 90. */
export const INIT_PRODUCER_ID = api("InitProducerId", 22, 4, true);
/** 4 is the form for brokers only. */
export const ADD_PARTITIONS_TO_TXN = api("AddPartitionsToTxn", 24, 2);
/** From 5 on the coordinator raises the epoch at each commit (KIP-890); the token must stay over commits. */
export const END_TXN = api("EndTxn", 26, 2);
export const DESCRIBE_CONFIGS = api("DescribeConfigs", 32, 2);
export const DESCRIBE_TRANSACTIONS = api("DescribeTransactions", 65, 0, true);

export const ALL_APIS: readonly Api[] = [
  PRODUCE,
  FETCH,
  LIST_OFFSETS,
  METADATA,
  FIND_COORDINATOR,
  CREATE_TOPICS,
  INIT_PRODUCER_ID,
  ADD_PARTITIONS_TO_TXN,
  END_TXN,
  DESCRIBE_CONFIGS,
  DESCRIBE_TRANSACTIONS,
];
