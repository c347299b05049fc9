import { describeExit } from "./exiting.js";

describeExit("kafkajs");
