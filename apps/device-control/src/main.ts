import { parseArgs } from "node:util";
import type { Backend, TransportName } from "./backends/backend.js";
import { openEmbedded } from "./backends/embedded-backend.js";
import { openKafka } from "./backends/kafka-backend.js";
import { Run } from "./run.js";
import { faultsOf, render, type Summary } from "./summary.js";
import { checkTermOrder } from "./term-order.js";

const LEASE_MS = 2_000;
const LIMIT_MS = 120_000;

const CHOICES: Readonly<Record<string, readonly TransportName[]>> = {
  embedded: ["embedded"],
  kafkajs: ["kafkajs"],
  rdkafka: ["rdkafka"],
  mixed: ["kafkajs", "rdkafka"],
};

const say = (line: string) => console.log(line);

function choose(): readonly TransportName[] {
  const { values } = parseArgs({ options: { kafka: { type: "boolean" }, transport: { type: "string" } } });
  const choice = values.transport ?? (values.kafka || process.env.KRABKA_BOOTSTRAP ? "kafkajs" : "embedded");
  const transports = CHOICES[choice];
  if (transports !== undefined) return transports;
  throw new Error(`--transport takes one of ${Object.keys(CHOICES).join(", ")}; got ${choice}`);
}

async function open(transports: readonly TransportName[]): Promise<Backend> {
  if (transports.includes("embedded")) {
    say("On the embedded log, in a temporary folder (npm start -- --kafka runs it on Kafka)");
    return openEmbedded();
  }
  const where = process.env.KRABKA_BOOTSTRAP ? `Kafka at ${process.env.KRABKA_BOOTSTRAP}` : "a Kafka broker of its own";
  say(`On ${where}, through ${transports.join(" and ")}`);
  return openKafka(transports);
}

await using backend = await open(choose());
const run = new Run({ backend, leaseMs: LEASE_MS, say });
const outOfTime = new Promise<never>((_, reject) => {
  setTimeout(() => reject(new Error(`The run did not end within ${LIMIT_MS} ms`)), LIMIT_MS).unref();
});
try {
  const result = await Promise.race([run.play(), outOfTime]);
  const log = await Promise.race([backend.readLog(), outOfTime]);
  const summary: Summary = { leaseMs: LEASE_MS, ...result, logged: log.length, violations: checkTermOrder(log) };
  say(`\n${render(summary)}`);
  const faults = faultsOf(summary);
  for (const fault of faults) say(`FAULT: ${fault}`);
  say(faults.length === 0 ? "\nAll guarantees held." : "\nA guarantee was broken.");
  process.exitCode = faults.length === 0 ? 0 : 1;
} finally {
  run.kill();
}
