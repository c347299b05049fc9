import { randomUUID } from "node:crypto";
import { type Kafka, Partitioners } from "kafkajs";

/** The values that are committed in the first partition of a topic, read by an ordinary consumer. */
export async function committedValues(kafka: Kafka, topic: string): Promise<readonly string[]> {
  // The end of a partition may be a transaction marker, which no consumer shows.
  const endMark = randomUUID();
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({ topic, acks: -1, messages: [{ partition: 0, value: endMark }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: endMark, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values: string[] = [];
  await new Promise<void>((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) reject(payload.error);
    });
    const eachMessage = async ({ message }: { message: { value: Buffer | null } }) => {
      const value = String(message.value);
      if (value === endMark) resolve();
      else values.push(value);
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return values;
}
