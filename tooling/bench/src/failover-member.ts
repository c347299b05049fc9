import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";

// A member of the failover benchmark: writes one record as soon as it leads, says so, and then only holds the role.
const [bootstrap, role, member, topic, leaseMs] = process.argv.slice(2) as [string, string, string, string, string];
const transport = new KafkaJsTransport({ kafka: { brokers: bootstrap.split(","), logLevel: logLevel.NOTHING } });
const client = new CoordinationClient(transport, { leaseMs: Number(leaseMs) });
process.on("disconnect", () => process.exit(0));
const observed = client.observe(Role.of(role));
const leadership = client.acquire(Role.of(role), MemberId.of(member));
for await (const { roster } of observed) if (roster.some((entry) => entry.member === member)) break;
process.send?.("registered");
await (await leadership).write({ topic, value: member });
process.send?.("written");
