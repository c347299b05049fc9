import { describeClosing } from "../../transport-kafkajs/kafka-test/closing.js";
import { RdKafkaTransport } from "../src/index.js";

describeClosing({
  name: "rdkafka",
  cycles: 200,
  transportTo: (brokers) => new RdKafkaTransport({ brokers, topic: "closing", requestTimeoutMs: 5_000 }),
});
