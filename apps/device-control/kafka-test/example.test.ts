import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, inject, it } from "vitest";

/** Runs the built example as its users do. */
async function runExample(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ code: number | null; output: string }> {
  const main = fileURLToPath(new URL("../dist/main.js", import.meta.url));
  const child = spawn(process.execPath, [main, ...args], { env: { ...process.env, ...env } });
  let output = "";
  child.stdout.on("data", (chunk) => {
    output += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output += chunk;
  });
  const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
  return { code, output };
}

it.each([
  ["embedded", {}],
  ["kafkajs", { KRABKA_BOOTSTRAP: inject("kafkaBootstrap") }],
  ["rdkafka", { KRABKA_BOOTSTRAP: inject("kafkaBootstrap") }],
  ["mixed", { KRABKA_BOOTSTRAP: inject("kafkaBootstrap") }],
])("the example keeps all promises on the transport %s", async (transport, env) => {
  const { code, output } = await runExample(["--transport", transport], env);
  expect(output).toContain("All guarantees held.");
  expect(output).toContain("1 write by the broker, 1 command by the device");
  expect(code).toBe(0);
});
