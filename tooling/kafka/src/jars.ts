import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

export interface JarOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal | undefined;
  /** Where fetched jars are kept. @default `$XDG_CACHE_HOME/krabka` or `~/.cache/krabka` */
  readonly cache?: string | undefined;
}

/**
 * The class path of a Kafka broker. The jars are fetched by Maven the first time and come from the cache after that.
 *
 * @throws Error saying what to install when Maven is missing, or what Maven said when it cannot fetch.
 */
export async function kafkaClassPath(version: string, options: JarOptions): Promise<string> {
  if (!/^\d+(\.\d+)+(-[\w.]+)?$/.test(version)) {
    throw new Error(`"${version}" is not a Kafka version; wanted something like "4.1.1"`);
  }
  const cache = options.cache ?? join(options.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "krabka");
  const jars = join(cache, `kafka-${version}`);
  if (!(await isDirectory(jars))) await fetchJars(version, cache, jars, options);
  return (await readdir(jars)).map((name) => join(jars, name)).join(":");
}

/** Fetches into a folder of its own and renames it, so that the cache only ever holds complete sets. */
async function fetchJars(version: string, cache: string, jars: string, options: JarOptions): Promise<void> {
  await mkdir(cache, { recursive: true });
  const aside = await mkdtemp(join(cache, "fetching-"));
  try {
    const fetched = join(aside, "jars");
    await writeFile(join(aside, "pom.xml"), pom(version));
    await runMaven(
      version,
      ["-f", join(aside, "pom.xml"), "dependency:copy-dependencies", `-DoutputDirectory=${fetched}`],
      options,
    );
    await rename(fetched, jars).catch(async (error: unknown) => {
      // Another process was faster; its set is as complete as this one.
      if (!(await isDirectory(jars))) throw error;
    });
  } finally {
    await rm(aside, { recursive: true, force: true });
  }
}

function runMaven(version: string, args: readonly string[], { env, signal }: JarOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const maxBuffer = 64 * 1024 * 1024;
    execFile("mvn", ["-q", "-B", ...args], { env, maxBuffer, ...(signal && { signal }) }, (error, stdout, stderr) => {
      if (error === null) resolve();
      else if (signal?.aborted) reject(signal.reason);
      else reject(new Error(explain(version, error, `${stdout}${stderr}`), { cause: error }));
    });
  });
}

function explain(version: string, error: { readonly code?: unknown }, output: string): string {
  if (error.code === "ENOENT") {
    return (
      "The jars of Kafka are fetched by Maven, but `mvn` is not on the PATH. Install Apache Maven 3.6 or newer, " +
      "or set KRABKA_BOOTSTRAP=host:port to use a cluster that runs already."
    );
  }
  const errors = output.split("\n").filter((line) => line.includes("[ERROR]"));
  return (
    `Maven could not fetch Kafka ${version} (org.apache.kafka:kafka_2.13:${version}). Check that this version exists ` +
    `and that Maven reaches its repository (network, proxy, mirror in settings.xml). Maven said:\n` +
    errors.slice(0, 5).join("\n")
  );
}

/** One binding of slf4j for every version of Kafka: slf4j-simple writes to standard error and needs no file. */
const pom = (version: string) => `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>krabka</groupId>
  <artifactId>development-brokers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>${version}</version>
      <exclusions>
        <exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion>
        <exclusion><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
`;

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (entry) => entry.isDirectory(),
    () => false,
  );
}
