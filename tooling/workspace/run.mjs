import { build, compiled, install, node, tool } from "./steps.mjs";

const commands = {
  kafka: async (args) => {
    await install(["krabka-workspace", "@krabka/tooling-kafka..."]);
    await build("tooling/kafka");
    return node("tooling/kafka/dist/main.js", args);
  },
  bench: async (args) => {
    await install(["krabka-workspace", "@krabka/tooling-bench..."]);
    await build("tooling/bench");
    return node("tooling/bench/dist/main.js", args);
  },
  conformance: async ([transport, ...args]) => {
    const folder = `packages/transport-${transport}/kafka-test/conformance`;
    if (!/^(kafkajs)$/.test(transport ?? "")) {
      console.error(`npm run conformance -- <transport>, where <transport> is kafkajs; got ${transport ?? "nothing"}`);
      return 2;
    }
    await install();
    await build(...compiled());
    return tool("vitest", ["run", "--project", "kafka", folder, ...args]);
  },
};

const [name, ...args] = process.argv.slice(2);
process.exitCode = await commands[name](args);
