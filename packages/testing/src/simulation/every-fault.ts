import type { FakeCluster } from "../cluster/fake-cluster.js";
import type { FakeCall, FaultAction, InjectedFault } from "../cluster/faults.js";
import { type ApiName, KafkaCode } from "../cluster/protocol.js";

const API_NAMES: readonly ApiName[] = [
  "Metadata",
  "CreateTopics",
  "DescribeConfigs",
  "FindCoordinator",
  "InitProducerId",
  "AddPartitionsToTxn",
  "EndTxn",
  "DescribeTransactions",
  "Produce",
  "Fetch",
  "ListOffsets",
  "WriteTxnMarkers",
];

/** The requests that clients send. */
export const CLIENT_APIS: readonly ApiName[] = API_NAMES.filter((api) => api !== "WriteTxnMarkers");

const LEADER_NOT_AVAILABLE = 5;
const NOT_ENOUGH_REPLICAS = 19;
const { NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE } = KafkaCode;

/** Errors that pass by themselves, by the requests that brokers answer with them. */
export const PASSING_CODES: Readonly<Record<ApiName, readonly number[]>> = {
  Metadata: [LEADER_NOT_AVAILABLE],
  CreateTopics: [],
  DescribeConfigs: [],
  FindCoordinator: [COORDINATOR_NOT_AVAILABLE],
  InitProducerId: [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, KafkaCode.CONCURRENT_TRANSACTIONS],
  AddPartitionsToTxn: [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, KafkaCode.CONCURRENT_TRANSACTIONS],
  EndTxn: [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, KafkaCode.CONCURRENT_TRANSACTIONS],
  DescribeTransactions: [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS],
  Produce: [NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS],
  Fetch: [NOT_LEADER_OR_FOLLOWER],
  ListOffsets: [NOT_LEADER_OR_FOLLOWER],
  WriteTxnMarkers: [NOT_LEADER_OR_FOLLOWER],
};

/** Every way in which one request of this kind can go wrong for a while. */
export const everyFault = (api: ApiName): readonly FaultAction[] => [
  { kind: "lose-request" },
  { kind: "lose-answer" },
  { kind: "drop-request" },
  { kind: "drop-answer" },
  { kind: "hold-request" },
  { kind: "hold-answer" },
  { kind: "delay", ms: 40 },
  ...PASSING_CODES[api].map((code): FaultAction => ({ kind: "error", code })),
];

export const showFault = (action: FaultAction): string => {
  switch (action.kind) {
    case "delay":
      return `delay ${action.ms} ms`;
    case "error":
      return `error ${action.code}`;
    default:
      return action.kind;
  }
};

/**
 * Hits the `index`-th request of one client, counted from 0 over all kinds of request. An error that no broker answers to
 * such a request hits nothing.
 *
 * @returns the faults by which it waits, one a kind of request; at most one of them hits
 */
export function faultAt(
  cluster: FakeCluster,
  clientId: string,
  index: number,
  action: FaultAction,
  seen: (call: FakeCall) => void = () => {},
): readonly InjectedFault[] {
  let left = index;
  const isPossible = (api: ApiName): boolean => action.kind !== "error" || PASSING_CODES[api].includes(action.code);
  const isIt = (call: FakeCall): boolean => {
    if (left-- !== 0 || !isPossible(call.api)) return false;
    seen(call);
    return true;
  };
  return CLIENT_APIS.map((api) => cluster.faults.inject({ api, clientId, action, matches: isIt }));
}
