import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { bundle } from "../bundle.js";
import { temporary } from "./temporary.js";

it("the README's example of the embedded transport runs as it stands, again and again", async () => {
  const readme = await readFile(fileURLToPath(new URL("../../README.md", import.meta.url)), "utf8");
  const section = readme.slice(readme.indexOf("## Embedded transport"));
  const snippet = /```ts\n(.*?)```/s.exec(section)?.[1] ?? "";
  const { directory, remove } = await temporary();
  await mkdir(directory);
  await writeFile(`${directory}/example.ts`, snippet);
  const script = await bundle(`${directory}/example.ts`, directory);
  const run = () => promisify(execFile)(process.execPath, [script], { cwd: directory });
  expect((await run()).stdout).toMatch(/^written at offset 0 under \d+:0:0\n0: open\n$/);
  expect((await run()).stdout).toMatch(/^written at offset 1 under \d+:0:1\n0: open\n1: open\n$/);
  await remove();
});
