import { encodeUtf8, Role } from "@krabka/core";
import { RdKafkaTransport } from "../src/index.js";

// Leads, writes, says so, and closes when its standard input ends. Nothing here ends the process.
const [, , bootstrap = ""] = process.argv;
const listener = {
  onRecords: () => {},
  onUncommitted: () => {},
  onReset: () => {},
  onMalformed: () => {},
  onError: () => {},
};
const value = encodeUtf8("v");
const record = { topic: "__coordination_state", partition: 0, key: value, value, headers: [] };

const transport = new RdKafkaTransport({ brokers: bootstrap, partitions: 1 });
await transport.prepare();
const role = Role.of("exit");
await transport.follow(role, listener).sync();
const session = await transport.openSession(role, { transactionTimeoutMs: 10_000, mayMint: () => true });
const { status } = await session.commit([record]);
console.log(status);
process.stdin.resume().once("end", () => void transport.close());
