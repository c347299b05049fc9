import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createContext, runInContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { describe, expect, it } from "vitest";

const home = new URL("../", import.meta.url);
const sources = readdirSync(new URL("src/", home)).map((name) => ({
  name,
  text: readFileSync(new URL(`src/${name}`, home), "utf8"),
}));

const bundle = async (format: "esm" | "iife"): Promise<string> => {
  const result = await build({
    entryPoints: [fileURLToPath(new URL("src/index.ts", home))],
    bundle: true,
    minify: true,
    write: false,
    format,
    globalName: "core",
    platform: "neutral",
    target: "es2022",
  });
  return result.outputFiles[0]?.text ?? "";
};

/** Runs inside the bare context, so it names nothing but the language and `core`. */
const useOfEverything = `
  const role = core.Role.of("röle 👑");
  const [a, b] = ["a", "b"].map((name) => core.MemberId.of(name));
  const registration = (member) => ({ kind: "registration", role, member, registeredAtMs: 0n, attributes: { at: "ä" } });
  const lease = { kind: "lease", role, member: a, pair: { producerId: 2n ** 53n + 1n, epoch: 7 }, term: undefined,
    grantedAtMs: 0n, deadlineMs: 30000n, attributes: {} };
  const log = [registration(a), registration(b), lease, { ...lease, term: 2n, deadlineMs: 40000n }];
  const records = log.map((entry, i) => ({ ...core.decodeEntry(core.encodeEntry(entry)), offset: BigInt(i) }));
  const state = core.RoleState.fold(role, records);
  const config = core.LeaseConfig.of();
  const decisions = [0n, 40000n].flatMap((now) => [a, b].map((m) => core.Succession.evaluate(state, m, now, config).kind));
  let refusal;
  try { core.decodeEntry({ key: Uint8Array.of(0, 9), value: null, headers: [] }); } catch (error) { refusal = error.code; }
  const gate = core.FenceGate.inMemory();
  gate.admit(state.lease.token);
  JSON.stringify({ token: state.lease.token, decisions, refusal, partition: core.partitionForRole(role),
    highest: String(gate.highest) });
`;

describe("core", () => {
  it("has no dependency of any kind", () => {
    const manifest = JSON.parse(readFileSync(new URL("package.json", home), "utf8")) as object;
    expect(Object.keys(manifest).filter((key) => /dependencies/i.test(key))).toEqual([]);
  });

  it("imports nothing but its own files", () => {
    const specifiers = sources.flatMap(({ text }) =>
      [...text.matchAll(/(?:from|import|require)\s*\(?\s*["']([^"']+)["']/g)].map((match) => match[1]),
    );
    expect(specifiers.length).toBeGreaterThan(20);
    const own = new Set(sources.map(({ name }) => `./${name.replace(/\.ts$/, ".js")}`));
    expect(specifiers.filter((specifier) => !own.has(specifier ?? ""))).toEqual([]);
  });

  it("compiles with the library of ES2022 and no other types", async () => {
    const project = JSON.parse(readFileSync(new URL("tsconfig.json", home), "utf8"));
    const base = JSON.parse(readFileSync(new URL("../../tsconfig.base.json", home), "utf8"));
    expect({ ...base.compilerOptions, ...project.compilerOptions }).toMatchObject({
      target: "ES2022",
      lib: ["ES2022"],
      types: [],
    });
    const compiler = fileURLToPath(new URL("../../node_modules/typescript/bin/tsc", home));
    const config = fileURLToPath(new URL("tsconfig.json", home));
    // Rejects with the compiler's messages when it finds an error.
    await promisify(execFile)(process.execPath, [compiler, "-p", config, "--noEmit"]);
  });

  it("runs where there is the language and nothing else", async () => {
    const context = createContext(Object.create(null));
    for (const name of ["TextEncoder", "Buffer", "process", "setTimeout", "URL", "AbortSignal", "structuredClone"]) {
      expect(runInContext(`typeof ${name}`, context)).toBe("undefined");
    }
    // V8 adds these to every context; they are not part of the language.
    runInContext("delete globalThis.console; delete globalThis.WebAssembly;", context);
    runInContext(await bundle("iife"), context);
    expect(JSON.parse(runInContext(useOfEverything, context))).toEqual({
      token: { term: "2", producerId: "9007199254740993", epoch: 7 },
      decisions: ["HOLD", "WAIT", "CHALLENGE", "CHALLENGE"],
      refusal: "MALFORMED_RECORD",
      partition: expect.any(Number),
      highest: "2:9007199254740993:7",
    });
  });

  it("takes at most 8 KiB, minified and gzipped", async () => {
    const bytes = gzipSync(await bundle("esm"), { level: 9 }).length;
    console.info(`@krabka/core: ${bytes} bytes minified and gzipped`);
    expect(bytes).toBeGreaterThan(1024);
    expect(bytes).toBeLessThanOrEqual(8 * 1024);
  });
});
