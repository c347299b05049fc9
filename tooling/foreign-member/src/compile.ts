import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { findJava, kafkaClassPath } from "@krabka/tooling-kafka";

/** The version of the Java client, whatever the version of the brokers: the first that speaks EndTxn version 5 by default is 4.0. */
const CLIENT_VERSION = "4.1.1";
const SOURCES = fileURLToPath(new URL("../java/", import.meta.url));

/** How to run the program: `java -cp classPath ForeignMember`. */
export interface Program {
  readonly java: string;
  readonly classPath: string;
}

/**
 * Compiles the program the first time; after that its classes come from the cache, by the hash of the sources.
 *
 * @throws Error saying what to install when Java, its compiler or Maven is missing, or what the compiler said.
 */
export async function compile(env: NodeJS.ProcessEnv): Promise<Program> {
  const java = await findJava(env);
  const kafka = await kafkaClassPath(CLIENT_VERSION, { env });
  const sources = (await readdir(SOURCES)).map((name) => join(SOURCES, name)).sort();
  const hash = createHash("sha256").update(CLIENT_VERSION);
  for (const source of sources) hash.update(await readFile(source));
  const cache = join(env.XDG_CACHE_HOME || join(homedir(), ".cache"), "krabka");
  const classes = join(cache, `foreign-member-${hash.digest("hex").slice(0, 16)}`);
  if (!(await isDirectory(classes))) await compileInto(classes, cache, compilerBeside(java), kafka, sources);
  return { java, classPath: `${classes}:${kafka}` };
}

/** Into a folder of its own that is renamed, so that the cache never holds half of the classes. */
async function compileInto(
  classes: string,
  cache: string,
  compiler: string,
  classPath: string,
  sources: readonly string[],
): Promise<void> {
  await mkdir(cache, { recursive: true });
  const aside = await mkdtemp(join(cache, "compiling-"));
  try {
    const compiled = join(aside, "classes");
    await runCompiler(compiler, ["--release", "17", "-d", compiled, "-cp", classPath, ...sources]);
    await rename(compiled, classes).catch(async (error: unknown) => {
      // Another process was faster, with the same classes.
      if (!(await isDirectory(classes))) throw error;
    });
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

const compilerBeside = (java: string): string => join(dirname(java), basename(java).replace("java", "javac"));

function runCompiler(compiler: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile(compiler, args, (error, stdout, stderr) => {
      if (error === null) resolve();
      else reject(new Error(explain(compiler, error, `${stdout}${stderr}`), { cause: error }));
    });
  });
}

const explain = (compiler: string, error: { readonly code?: unknown }, output: string): string =>
  error.code === "ENOENT"
    ? `The foreign member is a Java program, but its compiler \`${compiler}\` cannot be run. A Java runtime alone has none: ` +
      "install a JDK 17 or newer (on Debian openjdk-17-jdk-headless) and put it on the PATH or name it by JAVA_HOME."
    : `\`${compiler}\` could not compile the foreign member: ${output}`;

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (entry) => entry.isDirectory(),
    () => false,
  );
}
