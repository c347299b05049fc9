import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkPacked } from "./packed.mjs";
import { allButPeers, build, compiled, install, must, tool, toolPath } from "./steps.mjs";

// Everything that must hold before a change lands. The last line is what the test runner counted.
await install(allButPeers);
await build(...compiled());
const checks = [
  ["biome", ["check", "."]],
  ["tsc", ["-p", "tsconfig.check.json"]],
  ["knip", []],
];
for (const [name, args] of checks) {
  console.log(`> ${name} ${args.join(" ")}`);
  await must(toolPath(name), args);
}
console.log("> the packages as they would be published");
await checkPacked();

const folder = mkdtempSync(join(tmpdir(), "krabka-test-"));
const count = { passed: 0, failed: 0, skipped: 0 };
let sound = true;
for (const project of ["unit", "kafka"]) {
  const report = join(folder, `${project}.json`);
  const code = await tool("vitest", [
    "run",
    "--project",
    project,
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${report}`,
    ...process.argv.slice(2),
  ]);
  const { numPassedTests, numFailedTests, numPendingTests, testResults } = JSON.parse(readFileSync(report, "utf8"));
  count.passed += numPassedTests;
  count.failed += numFailedTests;
  count.skipped += numPendingTests;
  if (code !== 0) sound = false;
  // A file that could not even be loaded has no test that failed, and one that skips everything proves nothing.
  const ran = ({ status }) => status === "passed" || status === "failed";
  const empty = testResults.filter(({ assertionResults }) => !assertionResults.some(ran));
  for (const { name } of empty) console.error(`No test ran in ${name}; that counts as a failure`);
  count.failed += empty.length;
  if (empty.length > 0 || numPassedTests === 0) sound = false;
}
rmSync(folder, { recursive: true });
console.log(`${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
process.exitCode = sound && count.failed === 0 ? 0 : 1;
