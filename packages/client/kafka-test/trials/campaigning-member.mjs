// A member that campaigns in a process of its own, run from the built packages.
import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";

const { transport, bootstrap, member, roles, leaseMs, requestTimeoutMs } = JSON.parse(process.argv[2]);
const tell = (message) => process.connected && process.send(message);
for (const event of ["unhandledRejection", "uncaughtException"]) {
  process.on(event, (error) => tell({ kind: "unhandled", message: `${event}: ${error?.stack ?? error}` }));
}

const transports = {
  kafkajs: async () =>
    new KafkaJsTransport({ kafka: { brokers: bootstrap.split(","), logLevel: 0 }, requestTimeoutMs }),
  // By its path: the client does not depend on this transport.
  rdkafka: async () => {
    const { RdKafkaTransport } = await import("../../../transport-rdkafka/dist/index.js");
    return new RdKafkaTransport({ brokers: bootstrap, requestTimeoutMs });
  },
};
const client = new CoordinationClient(await transports[transport](), { leaseMs });
const leaderships = new Map();

for (const role of roles) {
  client.campaign(Role.of(role), MemberId.of(member), async (leadership, signal) => {
    leaderships.set(role, leadership);
    tell({ kind: "leads", role, token: String(leadership.token) });
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    tell({ kind: "lost", role, reason: leadership.loss?.reason, message: leadership.loss?.error.message });
  });
}

process.on("message", async ({ role, topic, value }) => {
  const result = await leaderships
    .get(role)
    .write({ topic, value })
    .then(
      () => "written",
      (error) => error.code,
    );
  tell({ kind: "wrote", role, value, result });
});
process.on("disconnect", () => process.exit(0));
