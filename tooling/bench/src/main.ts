import { connectOrStart, type KafkaCluster } from "@krabka/tooling-kafka";
import { measureFailover } from "./failover.js";
import { measureHandover } from "./handover.js";

const programs: Readonly<Record<string, (cluster: KafkaCluster, json: boolean) => Promise<void>>> = {
  handover: measureHandover,
  failover: measureFailover,
};

const names = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const json = process.argv.includes("--json");
const unknown = names.filter((name) => programs[name] === undefined);
if (names.length === 0 || unknown.length > 0) {
  console.error(
    `npm run bench -- <program> … [--json]; programs: ${Object.keys(programs).join(", ")}; got ${names.join(" ") || "none"}`,
  );
  process.exit(2);
}
await using cluster = await connectOrStart();
for (const name of names) await programs[name]?.(cluster, json);
