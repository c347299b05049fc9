import type { ByteReader } from "./byte-reader.js";
import { ByteWriter } from "./byte-writer.js";

/** Highest and lowest version of each request that a broker serves, by key. */
export type ServedVersions = ReadonlyMap<number, { readonly minVersion: number; readonly maxVersion: number }>;

export const decodeApiVersions = (from: ByteReader): { readonly code: number; readonly served: ServedVersions } => {
  const code = from.int16();
  const entries = from.array(() => {
    const key = from.int16();
    return [key, { minVersion: from.int16(), maxVersion: from.int16() }] as const;
  });
  return { code, served: new Map(entries) };
};

export const encodeMetadata = (topics: readonly string[]): Buffer => {
  const to = new ByteWriter();
  // Auto-creation would make a topic with the broker's default clean-up policy.
  return to
    .array(topics, (topic) => to.string(topic))
    .boolean(false)
    .boolean(false)
    .boolean(false).bytes;
};

export interface BrokerAddress {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
  readonly rack: string | null;
}

interface PartitionMetadata {
  readonly code: number;
  readonly partition: number;
  readonly leader: number;
  readonly leaderEpoch: number;
  readonly replicas: number;
}

export interface TopicMetadata {
  readonly code: number;
  readonly topic: string;
  readonly partitions: readonly PartitionMetadata[];
}

export interface ClusterMetadata {
  readonly brokers: readonly BrokerAddress[];
  readonly controller: number;
  readonly topics: readonly TopicMetadata[];
}

export const decodeMetadata = (from: ByteReader): ClusterMetadata => {
  from.int32();
  const brokers = from.array(() => ({
    nodeId: from.int32(),
    host: from.string(),
    port: from.int32(),
    rack: from.nullableString(),
  }));
  from.nullableString();
  const controller = from.int32();
  const topics = from.array(() => {
    const code = from.int16();
    const topic = from.string();
    from.boolean();
    const partitions = from.array(() => {
      const head = {
        code: from.int16(),
        partition: from.int32(),
        leader: from.int32(),
        leaderEpoch: from.int32(),
      };
      const replicas = from.array(() => from.int32()).length;
      from.array(() => from.int32());
      from.array(() => from.int32());
      return { ...head, replicas };
    });
    from.int32();
    return { code, topic, partitions };
  });
  return { brokers, controller, topics };
};

export interface NewTopic {
  readonly topic: string;
  readonly partitions: number;
  readonly replicationFactor: number;
  readonly configs: Readonly<Record<string, string>>;
}

export const encodeCreateTopics = (topic: NewTopic, timeoutMs: number): Buffer => {
  const to = new ByteWriter();
  to.array([topic], ({ topic: name, partitions, replicationFactor, configs }) => {
    to.string(name).int32(partitions).int16(replicationFactor).int32(0);
    to.array(Object.entries(configs), ([key, value]) => to.string(key).nullableString(value));
  });
  return to.int32(timeoutMs).boolean(false).bytes;
};

export interface CreateTopicsAnswer {
  readonly topic: string;
  readonly code: number;
  readonly message: string | null;
}

export const decodeCreateTopics = (from: ByteReader): CreateTopicsAnswer[] => {
  from.int32();
  return from.array(() => ({ topic: from.string(), code: from.int16(), message: from.nullableString() }));
};

/** The numbers by which DescribeConfigs knows what has settings. */
export const CONFIGURED = { topic: 2, broker: 4 } as const;

export const encodeDescribeConfigs = (
  kind: (typeof CONFIGURED)[keyof typeof CONFIGURED],
  resource: string,
  names: readonly string[],
): Buffer => {
  const to = new ByteWriter();
  to.array([resource], () => {
    to.int8(kind).string(resource);
    to.array(names, (name) => to.string(name));
  });
  return to.boolean(false).bytes;
};

export interface DescribeConfigsAnswer {
  readonly code: number;
  readonly message: string | null;
  readonly configs: ReadonlyMap<string, string | null>;
}

export const decodeDescribeConfigs = (from: ByteReader): DescribeConfigsAnswer[] => {
  from.int32();
  return from.array(() => {
    const code = from.int16();
    const message = from.nullableString();
    from.int8();
    from.string();
    const configs = from.array(() => {
      const name = from.string();
      const value = from.nullableString();
      from.boolean();
      from.int8();
      from.boolean();
      from.array(() => {
        from.string();
        from.nullableString();
        from.int8();
      });
      return [name, value] as const;
    });
    return { code, message, configs: new Map(configs) };
  });
};
