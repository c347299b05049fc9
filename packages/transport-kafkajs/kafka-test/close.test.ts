import { logLevel } from "kafkajs";
import { KafkaJsTransport } from "../src/index.js";
import { describeClosing } from "./closing.js";

describeClosing({
  name: "kafkajs",
  cycles: 300,
  transportTo: (bootstrap) => {
    const kafka = { brokers: bootstrap.split(","), logLevel: logLevel.NOTHING };
    return new KafkaJsTransport({ kafka, topic: "closing", requestTimeoutMs: 5_000 });
  },
});
