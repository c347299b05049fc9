// Leads, writes, and closes in the middle of a write when its standard input ends. Runs the built packages. Nothing here
// ends the process.
import { encodeUtf8, Role } from "@krabka/core";

const [, , name, bootstrap] = process.argv;
const transports = {
  kafkajs: async () => {
    const { KafkaJsTransport } = await import("@krabka/transport-kafkajs");
    return new KafkaJsTransport({ kafka: { brokers: bootstrap.split(","), logLevel: 0 }, partitions: 1 });
  },
  // By its path: this package does not depend on that one.
  rdkafka: async () => {
    const { RdKafkaTransport } = await import("../../transport-rdkafka/dist/index.js");
    return new RdKafkaTransport({ brokers: bootstrap, partitions: 1 });
  },
};
const silent = { onRecords() {}, onUncommitted() {}, onReset() {}, onMalformed() {}, onError() {} };
const value = encodeUtf8("v");
const record = { topic: "__coordination_state", partition: 0, key: value, value, headers: [] };
const transport = await transports[name]();
let session;

process.stdin.resume().once("end", () => {
  session?.commit([record]).catch(() => undefined);
  void transport.close();
});
console.log("opened");
try {
  await transport.prepare();
  const role = Role.of(`exit-${name}`);
  await transport.follow(role, silent).sync();
  session = await transport.openSession(role, { transactionTimeoutMs: 10_000, mayMint: () => true });
  console.log((await session.commit([record])).status);
} catch (error) {
  if (error.code !== "CLOSED") throw error;
}
