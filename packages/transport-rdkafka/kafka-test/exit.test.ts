import { describeExit } from "../../transport-kafkajs/kafka-test/exiting.js";

describeExit("rdkafka");
