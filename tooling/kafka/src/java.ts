import { execFile } from "node:child_process";
import { join } from "node:path";

/** The oldest Java that Kafka 4 brokers run on (KIP-1013). */
const OLDEST_JAVA = 17;

/**
 * The `java` command to run brokers with: `JAVA_HOME/bin/java` when `JAVA_HOME` is set, else the one on the `PATH`.
 *
 * @throws Error saying what to install when there is none, or when it is older than 17.
 */
export async function findJava(env: NodeJS.ProcessEnv): Promise<string> {
  const command = env.JAVA_HOME ? join(env.JAVA_HOME, "bin", "java") : "java";
  const banner = await new Promise<string>((resolve, reject) => {
    execFile(command, ["-version"], { env }, (error, _stdout, stderr) => {
      if (error === null) resolve(stderr);
      else reject(new Error(missingJava(command, env), { cause: error }));
    });
  });
  // `openjdk version "17.0.15" …`; before Java 9 the major version came second: `java version "1.8.0_392"`.
  const [, first, second] = /version "(\d+)(?:\.(\d+))?/.exec(banner) ?? [];
  const major = Number(first === "1" ? second : first);
  if (major < OLDEST_JAVA) {
    throw new Error(`Kafka needs Java ${OLDEST_JAVA} or newer, but \`${command}\` is Java ${major}. ${REMEDY}`);
  }
  return command;
}

const REMEDY = `Install a JDK ${OLDEST_JAVA} or newer and put it on the PATH or name it by JAVA_HOME.`;

function missingJava(command: string, env: NodeJS.ProcessEnv): string {
  const where = env.JAVA_HOME ? `JAVA_HOME is "${env.JAVA_HOME}"` : "it is not on the PATH and JAVA_HOME is not set";
  return `Kafka needs Java, but \`${command}\` cannot be run: ${where}. ${REMEDY}`;
}
