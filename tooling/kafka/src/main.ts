import { once } from "node:events";
import { parseArgs } from "node:util";
import { DEFAULT_KAFKA_VERSION, startKafka } from "./cluster.js";

const USAGE = `Runs Kafka brokers for development until Ctrl-C.

  --brokers 1|3     how many (default 1)
  --version X       version of Kafka (default ${DEFAULT_KAFKA_VERSION})
`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      brokers: { type: "string", default: "1" },
      version: { type: "string", default: DEFAULT_KAFKA_VERSION },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const brokers = values.brokers === "3" ? 3 : 1;
  if (String(brokers) !== values.brokers) throw new Error(`--brokers is "${values.brokers}"; wanted 1 or 3`);

  const interrupted = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => interrupted.abort());
  const startedAtMs = performance.now();
  process.stderr.write(`Starting Kafka ${values.version}; the first time its jars are fetched …\n`);
  await using cluster = await startKafka({ brokers, version: values.version, signal: interrupted.signal });
  process.stderr.write(`Serving after ${((performance.now() - startedAtMs) / 1000).toFixed(1)} s; Ctrl-C ends it.\n`);
  process.stdout.write(`KRABKA_BOOTSTRAP=${cluster.bootstrap}\n`);
  // Brokers do not keep this process running.
  const awake = setInterval(() => {}, 2 ** 31 - 1);
  if (!interrupted.signal.aborted) await once(interrupted.signal, "abort");
  clearInterval(awake);
}

main().catch((error: unknown) => {
  if (error instanceof Error && error.name === "AbortError") return;
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
