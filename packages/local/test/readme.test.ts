import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { bundle, scratch } from "./bundle.js";

const read = (path: string): Promise<string> => readFile(fileURLToPath(new URL(path, import.meta.url)), "utf8");

it("the README's example runs as it stands", async () => {
  const snippet = /```ts\n(.*?)```/s.exec(await read("../README.md"))?.[1] ?? "";
  const { directory, remove } = await scratch();
  await writeFile(`${directory}/example.ts`, snippet);
  const script = await bundle(`${directory}/example.ts`, directory);
  const { stdout } = await promisify(execFile)(process.execPath, [script], { cwd: directory });
  expect(stdout).toMatch(/^created as version \d+@[0-9a-f]{16}\nchanged\n$/);
  await remove();
});
