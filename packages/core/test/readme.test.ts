import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { describe, expect, it } from "vitest";

const home = new URL("../", import.meta.url);
const readme = readFileSync(new URL("README.md", home), "utf8");
const snippets = [...readme.matchAll(/```ts\n(.*?)```/gs)].map((match) => match[1] ?? "");

/** What the snippet prints, one string a line: texts as they are, everything else as JSON with bigint as text. */
const run = async (snippet: string): Promise<readonly string[]> => {
  const { outputFiles } = await build({
    stdin: { contents: `export {};\n${snippet}`, loader: "ts", resolveDir: fileURLToPath(home) },
    alias: { "@krabka/core": fileURLToPath(new URL("src/index.ts", home)) },
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    define: { console: "globalThis.__snippetConsole" },
  });
  const lines: string[] = [];
  const text = (value: unknown) =>
    typeof value === "string"
      ? value
      : JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? String(part) : part));
  const print = { log: (...values: readonly unknown[]) => void lines.push(values.map(text).join(" ")) };
  Object.assign(globalThis, { __snippetConsole: print });
  await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0]?.contents ?? []).toString("base64")}`);
  return lines;
};

describe("the README", () => {
  it("holds three snippets", () => {
    expect(snippets).toHaveLength(3);
  });

  it.each(snippets)("prints what it says, snippet %#", async (snippet) => {
    const said = [...snippet.matchAll(/console\.log\(.*\); \/\/ → (.*)$/gm)].map((match) => match[1]);
    expect(said).toHaveLength(snippet.split("console.log").length - 1);
    expect(await run(snippet)).toEqual(said);
  });
});
