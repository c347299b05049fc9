import {
  Backoff,
  type CoordinationTopic,
  coordinationTopicSettings,
  type Deadline,
  KrabkaError,
  type Prepared,
} from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import { errorOf, meaningOf, NONE, onTopic, TOPIC_ALREADY_EXISTS } from "./error-codes.js";
import { CREATE_TOPICS, DESCRIBE_CONFIGS } from "./wire/api.js";
import {
  CONFIGURED,
  decodeCreateTopics,
  decodeDescribeConfigs,
  encodeCreateTopics,
  encodeDescribeConfigs,
  type TopicMetadata,
} from "./wire/cluster-requests.js";
import { UnansweredError } from "./wire-connection.js";

export interface WantedTopic extends CoordinationTopic {
  /** @default 3, or the number of brokers where that is smaller */
  readonly replicationFactor: number | undefined;
}

export interface TopicFindings extends Prepared {
  /** How long the topic keeps tombstones. */
  readonly deleteRetentionMs: number;
}

const DEFAULT_REPLICATION = 3;
/** Kafka's own default. */
const DEFAULT_DELETE_RETENTION_MS = 86_400_000;

/** Creates the coordination topic where it is absent, then checks what is there. */
export async function prepareTopic(map: ClusterMap, wanted: WantedTopic, deadline: Deadline): Promise<TopicFindings> {
  const found = (await map.refresh(wanted.name, deadline)) ?? (await createTopic(map, wanted, deadline));
  const configs = await topicConfigs(map, wanted.name, deadline);
  const policy = configs.get("cleanup.policy") ?? "";
  if (policy !== "compact") throw misconfigured(wanted.name, "cleanup.policy", policy, "compact");
  if (found.partitions.length !== wanted.partitions) {
    throw misconfigured(wanted.name, "partition count", String(found.partitions.length), String(wanted.partitions));
  }
  return {
    topic: { name: wanted.name, partitions: wanted.partitions },
    warnings: warningsFor(wanted.name, found, configs),
    deleteRetentionMs: Number(configs.get("delete.retention.ms") ?? DEFAULT_DELETE_RETENTION_MS),
  };
}

const misconfigured = (topic: string, setting: string, found: string, wanted: string): KrabkaError =>
  new KrabkaError(
    "TOPIC_MISCONFIGURED",
    `Topic ${JSON.stringify(topic)}: ${setting} is ${JSON.stringify(found)}; ${JSON.stringify(wanted)} is wanted`,
  );

const warningsFor = (
  topic: string,
  found: TopicMetadata,
  configs: ReadonlyMap<string, string | null>,
): readonly string[] => {
  const warnings: string[] = [];
  const name = JSON.stringify(topic);
  const replicas = Math.min(...found.partitions.map((partition) => partition.replicas));
  if (replicas === 1) {
    warnings.push(`Topic ${name} has replication factor 1: the loss of one broker loses the roles; 3 is advised`);
  }
  const inSync = configs.get("min.insync.replicas");
  if (replicas >= 3 && inSync !== undefined && Number(inSync) < 2) {
    warnings.push(`Topic ${name}: min.insync.replicas is ${inSync}; 2 is advised with ${replicas} replicas`);
  }
  if (configs.get("unclean.leader.election.enable") === "true") {
    warnings.push(`Topic ${name}: unclean.leader.election.enable is true: committed records may be lost`);
  }
  if (configs.get("message.timestamp.type") !== "LogAppendTime") {
    warnings.push(`Topic ${name}: message.timestamp.type is not LogAppendTime: leases are judged by members' clocks`);
  }
  return warnings;
};

const createTopic = async (map: ClusterMap, wanted: WantedTopic, deadline: Deadline): Promise<TopicMetadata> => {
  const what = `Creating topic ${JSON.stringify(wanted.name)}`;
  const backoff = new Backoff(20, 250);
  for (;;) {
    const { brokers, controller } = await map.metadata(wanted.name, deadline);
    const replicationFactor = wanted.replicationFactor ?? Math.min(DEFAULT_REPLICATION, brokers.length);
    const configs = coordinationTopicSettings(replicationFactor);
    const topic = { topic: wanted.name, partitions: wanted.partitions, replicationFactor, configs };
    try {
      const nodeId = controller >= 0 ? controller : (brokers[0]?.nodeId ?? -1);
      const encode = (): Buffer => encodeCreateTopics(topic, map.requestTimeoutMs);
      const answer = decodeCreateTopics(await map.ask(nodeId, "write", { api: CREATE_TOPICS, encode }, deadline))[0];
      const code = answer?.code ?? -1;
      // Another member may have been faster; what it made is checked like any other topic.
      if (code === NONE || code === TOPIC_ALREADY_EXISTS) return await untilKnown(map, wanted, deadline);
      if (meaningOf(code) === "refused" || meaningOf(code) === "unknown") {
        const right = `${onTopic("Create", wanted.name)}, or a topic that was created before`;
        throw errorOf(code, what, { detail: answer?.message, right });
      }
    } catch (error) {
      if (!(error instanceof UnansweredError)) throw error;
    }
    await deadline.pause(backoff.next());
  }
};

/** A topic takes a moment until every broker knows it with a leader for each partition. */
const untilKnown = async (map: ClusterMap, { name }: WantedTopic, deadline: Deadline): Promise<TopicMetadata> => {
  const backoff = new Backoff(5, 100);
  for (;;) {
    const found = await map.refresh(name, deadline);
    if (found !== undefined && found.partitions.length > 0 && found.partitions.every(({ leader }) => leader >= 0)) {
      return found;
    }
    await deadline.pause(backoff.next());
  }
};

const CHECKED_SETTINGS = [
  "cleanup.policy",
  "min.insync.replicas",
  "unclean.leader.election.enable",
  "message.timestamp.type",
  "delete.retention.ms",
];

const topicConfigs = async (
  map: ClusterMap,
  topic: string,
  deadline: Deadline,
): Promise<ReadonlyMap<string, string | null>> => {
  const what = `Reading the settings of topic ${JSON.stringify(topic)}`;
  const backoff = new Backoff(10, 250);
  for (;;) {
    const { brokers } = await map.metadata(topic, deadline);
    for (const { nodeId } of brokers) {
      try {
        const encode = (): Buffer => encodeDescribeConfigs(CONFIGURED.topic, topic, CHECKED_SETTINGS);
        const bytes = await map.ask(nodeId, "write", { api: DESCRIBE_CONFIGS, encode }, deadline);
        const answer = decodeDescribeConfigs(bytes)[0];
        const code = answer?.code ?? -1;
        if (code === NONE && answer !== undefined) return answer.configs;
        const absent = code === 3;
        if (!absent && meaningOf(code) === "refused") {
          throw errorOf(code, what, { detail: answer?.message, right: onTopic("DescribeConfigs", topic) });
        }
      } catch (error) {
        if (!(error instanceof UnansweredError)) throw error;
      }
    }
    await deadline.pause(backoff.next());
  }
};
