import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../", import.meta.url));

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`Node 20.19 or newer is needed; this is ${process.versions.node}`);
  process.exit(1);
}

/** Runs a command in the repository and resolves with its exit code; signals reach it through the terminal's group. */
export function run(command, args, { quiet = false, env = {} } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ["inherit", quiet ? "pipe" : "inherit", quiet ? "pipe" : "inherit"],
      env: { ...process.env, ...env },
    });
    const output = [];
    child.stdout?.on("data", (chunk) => output.push(chunk));
    child.stderr?.on("data", (chunk) => output.push(chunk));
    const forward = (signal) => child.kill(signal);
    process.once("SIGINT", forward).once("SIGTERM", forward);
    child.once("error", reject);
    child.once("exit", (code, signal) => {
      process.off("SIGINT", forward).off("SIGTERM", forward);
      if (code !== 0 && quiet) process.stderr.write(Buffer.concat(output));
      resolve(code ?? (signal === "SIGINT" ? 130 : 1));
    });
  });
}

/** Like `run`, but a failure ends this process. */
export async function must(command, args, options) {
  const code = await run(command, args, options);
  if (code !== 0) process.exit(code);
}

export const { packageManager } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

export const toolPath = (name) => join(root, "node_modules", ".bin", name);

/** What the benchmarks compare with is native, and nothing else needs it. */
export const allButPeers = ["!@krabka/tooling-peers"];

/** The packages whose dependencies a step needs, as pnpm filters; none means all. */
export async function install(filters = []) {
  const stamp = stampOf(filters);
  if (stamp.isCurrent()) return;
  const selection = filters.flatMap((filter) => ["--filter", filter]);
  console.log("Installing dependencies ...");
  await must("npx", ["--yes", packageManager, "install", "--frozen-lockfile", ...selection], {
    quiet: true,
    // Without a terminal pnpm would ask before it replaces a node_modules folder.
    env: { CI: "true" },
  });
  stamp.write();
}

/** Remembers what was installed, so that a second run starts at once. */
function stampOf(filters) {
  const hash = createHash("sha256").update(JSON.stringify(filters));
  hash.update(readFileSync(join(root, "pnpm-lock.yaml"))).update(readFileSync(join(root, "pnpm-workspace.yaml")));
  const digest = hash.digest("hex");
  const folder = join(root, "node_modules");
  const file = join(folder, `.krabka-installed-${digest.slice(0, 16)}`);
  return {
    isCurrent: () => {
      try {
        return readFileSync(file, "utf8") === digest;
      } catch {
        return false;
      }
    },
    write: () => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(file, digest);
    },
  };
}

/** Compiles packages and what they depend on. */
export const build = (...folders) => must(toolPath("tsc"), ["-b", ...folders]);

/** All folders with a package that is compiled. */
export const compiled = () =>
  ["packages", "apps", "tooling"].flatMap((parent) =>
    readdirSync(join(root, parent), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(parent, entry.name))
      .filter((folder) => readdirSync(join(root, folder)).includes("tsconfig.json")),
  );

export const node = (script, args = [], options = {}) => run(process.execPath, [script, ...args], options);
export const tool = (name, args = [], options = {}) => run(toolPath(name), args, options);
