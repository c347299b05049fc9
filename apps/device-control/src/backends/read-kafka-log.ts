import { randomUUID } from "node:crypto";
import { TOKEN_HEADER } from "@krabka/core";
import { CompressionTypes, type Kafka, Partitioners } from "kafkajs";
import type { LoggedCommand } from "../term-order.js";

const END_MARK = "device-control-end";

/**
 * Reads everything that is committed in a topic, with an ordinary consumer. A mark appended to each partition tells it
 * where to stop: the end of a partition may be a transaction marker, which no consumer shows.
 */
export async function readKafkaLog(kafka: Kafka, topic: string, partitions: number): Promise<readonly LoggedCommand[]> {
  const run = randomUUID();
  await appendEndMarks(kafka, topic, partitions, run);
  const consumer = kafka.consumer({ groupId: `log-check-${run}`, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const log: LoggedCommand[] = [];
  const open = new Set(Array.from({ length: partitions }, (_, partition) => partition));
  await new Promise<void>((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    const eachMessage = async ({ partition, message }: { partition: number; message: Message }) => {
      if (message.headers?.[END_MARK] === undefined) {
        const token = message.headers?.[TOKEN_HEADER]?.toString();
        log.push({ partition, offset: BigInt(message.offset), token });
      } else if (message.headers[END_MARK].toString() === run) open.delete(partition);
      if (open.size === 0) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return log;
}

interface Message {
  readonly offset: string;
  readonly headers?: Record<string, { toString(): string } | undefined>;
}

async function appendEndMarks(kafka: Kafka, topic: string, partitions: number, run: string): Promise<void> {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const messages = Array.from({ length: partitions }, (_, partition) => ({
    partition,
    key: null,
    value: null,
    headers: { [END_MARK]: run },
  }));
  await producer.send({ topic, acks: -1, compression: CompressionTypes.None, messages });
  await producer.disconnect();
}
