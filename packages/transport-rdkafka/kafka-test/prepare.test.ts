import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import kafkajs from "kafkajs";
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from "vitest";
import { type Describer, RdKafkaTransport, UNSUPPORTED_REASONS } from "../src/index.js";

const PARTITIONS = 2;
const TOPIC_SETTING = 1;
const SINGLE_REPLICA = expect.stringContaining("replication factor 1");

let admin: kafkajs.Admin;
let topics = 0;
const opened: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  const brokers = inject("kafkaBootstrap").split(",");
  admin = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.NOTHING }).admin();
  await admin.connect();
});
afterEach(() => Promise.all(opened.splice(0).map((one) => one.close())));
afterAll(() => admin.disconnect());

const freshTopic = (): string => {
  topics += 1;
  return `prepare-${topics}`;
};

/** A topic as brokers make it by default: deleted by age. */
const ordinaryTopic = async (): Promise<string> => {
  const topic = freshTopic();
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }], waitForLeaders: true });
  return topic;
};

const rdkafka = (topic: string, describer?: Describer): RdKafkaTransport => {
  const brokers = inject("kafkaBootstrap");
  const transport = new RdKafkaTransport({ brokers, topic, partitions: PARTITIONS, describer });
  opened.push(transport);
  return transport;
};

const kafkaJs = (topic: string): KafkaJsTransport => {
  const kafka = { brokers: inject("kafkaBootstrap").split(","), logLevel: kafkajs.logLevel.NOTHING };
  const transport = new KafkaJsTransport({ kafka, topic, partitions: PARTITIONS });
  opened.push(transport);
  return transport;
};

const settingsOf = async (name: string): Promise<readonly (readonly [string, string])[]> => {
  const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name };
  const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: false });
  const entries = resources[0]?.configEntries.filter(({ configSource }) => configSource === TOPIC_SETTING) ?? [];
  return entries.map(({ configName, configValue }) => [configName, configValue] as const).sort();
};

describe("prepare without a describer", () => {
  it("creates the topic with the settings that the kafkajs transport would give it", async () => {
    const [one, other] = [freshTopic(), freshTopic()];
    const { warnings } = await rdkafka(one).prepare();
    expect(warnings).toEqual([SINGLE_REPLICA]);
    await kafkaJs(other).prepare();
    const settings = await settingsOf(one);
    expect(settings).toContainEqual(["cleanup.policy", "compact"]);
    expect(settings).toEqual(await settingsOf(other));
  });

  it("warns that it could not check the clean-up policy of a topic that was there, for the declared reason", async () => {
    const topic = await ordinaryTopic();
    const { warnings } = await rdkafka(topic).prepare();
    const unchecked = `cleanup.policy must be compact, which was not checked: ${UNSUPPORTED_REASONS.topicSettings}`;
    expect(warnings).toEqual([expect.stringContaining(unchecked), SINGLE_REPLICA]);
  });

  it("refuses another number of partitions", async () => {
    const topic = freshTopic();
    await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS + 1 }], waitForLeaders: true });
    await expect(rdkafka(topic).prepare()).rejects.toMatchObject({
      code: "TOPIC_MISCONFIGURED",
      message: `Topic "${topic}": partition count is ${PARTITIONS + 1}; ${PARTITIONS} is wanted`,
    });
  });
});

describe("prepare with a describer", () => {
  it("refuses a topic that is deleted by age", async () => {
    const topic = await ordinaryTopic();
    await expect(rdkafka(topic, kafkaJs(topic)).prepare()).rejects.toMatchObject({
      code: "TOPIC_MISCONFIGURED",
      message: `Topic "${topic}": cleanup.policy is "delete"; "compact" is wanted`,
    });
  });

  it("passes a compacted topic, and warns of what the describer warns of", async () => {
    const topic = freshTopic();
    await rdkafka(topic).prepare();
    expect((await rdkafka(topic, kafkaJs(topic)).prepare()).warnings).toEqual([SINGLE_REPLICA]);
  });

  it("refuses a describer of another topic", async () => {
    const [topic, another] = [freshTopic(), freshTopic()];
    await expect(rdkafka(topic, kafkaJs(another)).prepare()).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(`"${another}"`),
    });
  });
});
