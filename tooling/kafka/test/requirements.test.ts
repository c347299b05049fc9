import { chmod, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { kafkaClassPath } from "../src/jars.js";
import { findJava } from "../src/java.js";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "krabka-requirements-"));
});

afterEach(() => rm(folder, { recursive: true }));

async function command(name: string, script: string): Promise<void> {
  const file = join(folder, name);
  await writeFile(file, `#!/bin/sh\n${script}\n`);
  await chmod(file, 0o755);
}

test("a missing java is named together with what to install", async () => {
  await expect(findJava({ PATH: folder })).rejects.toThrow(/`java` cannot be run.*not on the PATH.*Install a JDK 17/);
});

test("a JAVA_HOME without java is named", async () => {
  await expect(findJava({ PATH: folder, JAVA_HOME: folder })).rejects.toThrow(`JAVA_HOME is "${folder}"`);
});

test.each([
  ['java version "1.8.0_392"', 8],
  ['openjdk version "11.0.22" 2024-01-16', 11],
])("a java that says %s is too old", async (banner, major) => {
  await command("java", `echo '${banner}' >&2`);
  await expect(findJava({ PATH: folder })).rejects.toThrow(`needs Java 17 or newer, but \`java\` is Java ${major}`);
});

test.each(['openjdk version "17" 2021-09-14', 'openjdk version "21.0.2" 2024-01-16', 'openjdk version "25-ea"'])(
  "a java that says %s is taken",
  async (banner) => {
    await command("java", `echo '${banner}' >&2`);
    expect(await findJava({ PATH: folder })).toBe("java");
  },
);

test("a missing Maven is named together with what to do instead", async () => {
  const cache = join(folder, "cache");
  const fetched = kafkaClassPath("4.1.1", { env: { PATH: folder }, cache });
  await expect(fetched).rejects.toThrow(/`mvn` is not on the PATH.*Install Apache Maven.*KRABKA_BOOTSTRAP/);
  expect(await readdir(cache)).toEqual([]);
});

test("what Maven cannot fetch is reported with its own words and leaves no half-filled cache", async () => {
  const cache = join(folder, "cache");
  await command("mvn", "echo '[ERROR] Could not find artifact'; exit 1");
  const fetched = kafkaClassPath("4.999.0", { env: { PATH: folder }, cache });
  await expect(fetched).rejects.toThrow(/could not fetch Kafka 4\.999\.0.*Could not find artifact/s);
  expect(await readdir(cache)).toEqual([]);
});

test("what two processes fetch at once is whole, and is not fetched again", async () => {
  const cache = join(folder, "cache");
  const fake = [
    "for arg; do case $arg in -DoutputDirectory=*) out=$" + "{arg#*=};; esac; done",
    '/bin/mkdir "$out"; : >"$out/a.jar"; : >"$out/b.jar"',
  ];
  await command("mvn", fake.join("\n"));
  const options = { env: { PATH: folder }, cache };
  const [first, second] = await Promise.all([kafkaClassPath("4.1.1", options), kafkaClassPath("4.1.1", options)]);
  expect(first.split(":").length).toBe(2);
  expect(second.split(":").sort()).toEqual(first.split(":").sort());
  expect(await readdir(cache)).toEqual(["kafka-4.1.1"]);
  await command("mvn", "exit 1");
  expect((await kafkaClassPath("4.1.1", options)).split(":").length).toBe(2);
});

test("a version that is none is refused before anything is fetched", async () => {
  await expect(kafkaClassPath("../4", { env: {}, cache: folder })).rejects.toThrow('"../4" is not a Kafka version');
});
