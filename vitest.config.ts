import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (name: string, folder: string) => ({
  find: new RegExp(`^@krabka/${name}$`),
  replacement: fileURLToPath(new URL(`${folder}/src/index.ts`, import.meta.url)),
});
// Tests run the sources, so that no test depends on what was built last.
const alias = [
  ...readdirSync(new URL("packages/", import.meta.url)).map((name) => source(name, `packages/${name}`)),
  source("tooling-kafka", "tooling/kafka"),
];

const project = (name: string, include: string[], testTimeout: number, fileParallelism: boolean) => ({
  resolve: { alias },
  test: { name, include, testTimeout, hookTimeout: 120_000, fileParallelism },
});

export default defineConfig({
  test: {
    projects: [
      // No broker: runs in seconds.
      project("unit", ["{packages,apps,tooling}/*/test/**/*.test.ts"], 30_000, true),
      // Real brokers, one file after the other.
      project("kafka", ["{packages,apps,tooling}/*/kafka-test/**/*.test.ts"], 120_000, false),
    ],
  },
});
