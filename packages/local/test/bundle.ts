import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

/** A directory that `remove` deletes, on a real disk. */
export async function scratch(): Promise<{ readonly directory: string; readonly remove: () => Promise<void> }> {
  const directory = await mkdtemp(join(tmpdir(), "krabka-local-"));
  return { directory, remove: () => rm(directory, { recursive: true, force: true }) };
}

/** Makes a script, by path or from this folder, runnable by a plain Node process, from the sources. */
export async function bundle(script: string, into: string): Promise<string> {
  const outfile = join(into, basename(script).replace(/\.ts$/, ".mjs"));
  await build({
    entryPoints: [isAbsolute(script) ? script : path(script)],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    alias: {
      "@krabka/core": path("../../core/src/index.ts"),
      "@krabka/client": path("../../client/src/index.ts"),
      "@krabka/local": path("../src/index.ts"),
    },
    logLevel: "error",
  });
  return outfile;
}
