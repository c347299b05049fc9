import { randomUUID } from "node:crypto";
import { connectOrStart, type KafkaCluster } from "@krabka/tooling-kafka";
import { Kafka, logLevel } from "kafkajs";
import { type Backend, COMMAND_PARTITIONS, type TransportName } from "./backend.js";
import { readKafkaLog } from "./read-kafka-log.js";

/**
 * Kafka: the cluster that `KRABKA_BOOTSTRAP` names, else a broker of its own for this run.
 *
 * @param transports by which the candidates take part, in turn
 */
export async function openKafka(transports: readonly TransportName[]): Promise<Backend> {
  const cluster = await connectOrStart();
  try {
    const topic = `device-commands-${randomUUID().slice(0, 8)}`;
    const kafka = new Kafka({
      clientId: "device-control",
      brokers: cluster.bootstrap.split(","),
      logLevel: logLevel.NOTHING,
    });
    await createTopic(kafka, topic);
    return kafkaBackend(cluster, kafka, topic, transports);
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

const kafkaBackend = (
  cluster: KafkaCluster,
  kafka: Kafka,
  topic: string,
  transports: readonly TransportName[],
): Backend => ({
  topic,
  entryOf: (index) => ({
    transport: transports[index % transports.length] as TransportName,
    address: cluster.bootstrap,
  }),
  readLog: () => readKafkaLog(kafka, topic, COMMAND_PARTITIONS),
  [Symbol.asyncDispose]: () => cluster.close(),
});

async function createTopic(kafka: Kafka, topic: string): Promise<void> {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: COMMAND_PARTITIONS }], waitForLeaders: true });
  await admin.disconnect();
}
