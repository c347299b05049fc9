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
  source("tooling-foreign-member", "tooling/foreign-member"),
  {
    find: /^@krabka\/testing\/conformance$/,
    replacement: fileURLToPath(new URL("packages/testing/src/conformance/index.ts", import.meta.url)),
  },
];

interface Pace {
  readonly testTimeout: number;
  readonly fileParallelism: boolean;
  readonly globalSetup?: string[];
}

const project = (name: string, include: string[], pace: Pace) => ({
  resolve: { alias },
  test: { name, include, hookTimeout: 120_000, ...pace },
});

export default defineConfig({
  test: {
    projects: [
      // No broker: runs in seconds.
      project("unit", ["{packages,apps,tooling}/*/test/**/*.test.ts"], { testTimeout: 30_000, fileParallelism: true }),
      // Real brokers, one file after the other; `inject("kafkaBootstrap")` is the broker that they share.
      project("kafka", ["{packages,apps,tooling}/*/kafka-test/**/*.test.ts"], {
        testTimeout: 120_000,
        fileParallelism: false,
        globalSetup: ["tooling/kafka/src/vitest-global-setup.ts"],
      }),
    ],
  },
});
