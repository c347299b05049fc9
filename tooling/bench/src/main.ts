import { connectOrStart, type KafkaCluster } from "@krabka/tooling-kafka";
import { measureCompareAndSet } from "./compare-and-set.js";
import { measureEmbeddedHandover } from "./embedded-handover.js";
import { measureFailover } from "./failover.js";
import { measureHandover } from "./handover.js";
import { measureRecovery } from "./recovery.js";

type Program = (json: boolean) => Promise<void>;

const onKafka =
  (measure: (cluster: KafkaCluster, json: boolean) => Promise<void>): Program =>
  async (json) => {
    await using cluster = await connectOrStart();
    await measure(cluster, json);
  };

const programs: Readonly<Record<string, Program>> = {
  handover: onKafka(measureHandover),
  failover: onKafka(measureFailover),
  "compare-and-set": measureCompareAndSet,
  recovery: measureRecovery,
  "embedded-handover": measureEmbeddedHandover,
};

const names = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const json = process.argv.includes("--json");
const unknown = names.filter((name) => programs[name] === undefined);
if (names.length === 0 || unknown.length > 0) {
  const known = Object.keys(programs).join(", ");
  console.error(`npm run bench -- <program> … [--json]; programs: ${known}; got ${names.join(" ") || "none"}`);
  process.exit(2);
}
for (const name of names) {
  console.log(`# ${name}`);
  await programs[name]?.(json);
}
