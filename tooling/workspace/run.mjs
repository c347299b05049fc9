import { allButPeers, build, compiled, install, node, packageManager, run, tool } from "./steps.mjs";

const commands = {
  // turbo looks for the package manager on the path, which a fresh machine does not have.
  build: async (args) => {
    await install(allButPeers);
    const turbo = ["turbo", "run", "build", ...args].join(" ");
    return run("npx", ["--yes", "-p", packageManager, "-c", turbo]);
  },
  kafka: async (args) => {
    await install(["krabka-workspace", "@krabka/tooling-kafka..."]);
    await build("tooling/kafka");
    return node("tooling/kafka/dist/main.js", args);
  },
  bench: async (args) => {
    await install(["krabka-workspace", "@krabka/tooling-bench...", "@krabka/tooling-peers"]);
    await build("tooling/bench");
    return node("tooling/bench/dist/main.js", args);
  },
  conformance: async ([transport, ...args]) => {
    const folder = `packages/transport-${transport}/kafka-test/conformance`;
    const { version, rest } = kafkaVersion(args);
    if (!/^(kafkajs|rdkafka)$/.test(transport ?? "") || version === "") {
      console.error("npm run conformance -- <transport> [--kafka <version>], where <transport> is kafkajs or rdkafka");
      return 2;
    }
    await install(allButPeers);
    await build(...compiled());
    const env = version === undefined ? {} : { KRABKA_KAFKA_VERSION: version };
    return tool("vitest", ["run", "--project", "kafka", folder, ...rest], { env });
  },
};

/** Takes `--kafka <version>` out of the arguments; an empty version was not given where it should be. */
function kafkaVersion(args) {
  const at = args.indexOf("--kafka");
  if (at < 0) return { version: undefined, rest: args };
  return { version: args[at + 1] ?? "", rest: args.toSpliced(at, 2) };
}

const [name, ...args] = process.argv.slice(2);
process.exitCode = await commands[name](args);
