// A leader in a process of its own, run from the built packages, that can be stopped at a known instruction.
import { randomUUID } from "node:crypto";
import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";

const [bootstrap, leaseMs] = process.argv.slice(2);
const transport = new KafkaJsTransport({ kafka: { brokers: bootstrap.split(","), logLevel: 0 } });
const client = new CoordinationClient(transport, { leaseMs: Number(leaseMs) });
const leadership = await client.acquire(Role.of(`stopped-${randomUUID()}`), MemberId.of("m"), { timeoutMs: 10_000 });
process.on("message", async () => {
  await new Promise((resolve) => process.send({ kind: "about-to-block" }, undefined, undefined, resolve));
  // The stop falls into this wait, so the next instruction is the first one after the process wakes up.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
  const isLeader = leadership.isLeader;
  const write = await leadership.write({ topic: "any", value: "never" }).then(
    () => "accepted",
    (error) => error.code,
  );
  process.send({ kind: "woke", isLeader, write });
});
process.send({ kind: "leading" });
process.on("disconnect", () => process.exit(0));
