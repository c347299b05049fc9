import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { Kafka, logLevel, Partitioners } from "kafkajs";
import { expect, inject, it } from "vitest";
import { compile } from "../src/compile.js";
import { ForeignMember } from "../src/index.js";

interface Golden {
  readonly records: readonly { readonly key: string; readonly value: string }[];
  readonly malformedKeys: readonly { readonly hex: string }[];
  readonly malformedValues: readonly { readonly kind: string; readonly hex: string }[];
}

const golden: Golden = JSON.parse(
  await readFile(new URL("../../../packages/core/test/golden.json", import.meta.url), "utf8"),
);
const [registration, lease] = golden.records as [Golden["records"][0], Golden["records"][0]];

/** What the program says of each key and value. */
async function judge(lines: readonly string[]): Promise<readonly { event: string; writesTheSame?: boolean }[]> {
  const { java, classPath } = await compile(process.env);
  return new Promise((resolve, reject) => {
    const child = execFile(java, ["-cp", classPath, "ForeignMember", "decode"], (error, stdout) => {
      if (error === null)
        resolve(
          stdout
            .trim()
            .split("\n")
            .map((line) => JSON.parse(line)),
        );
      else reject(error);
    });
    child.stdin?.end(lines.map((line) => `${line}\n`).join(""));
  });
}

it("reads the golden records and writes them byte for byte", async () => {
  const said = await judge(golden.records.map(({ key, value }) => `${key} ${value}`));
  expect(said).toEqual(golden.records.map(() => ({ event: "decoded", writesTheSame: true })));
});

it("refuses each malformed key and value, and empty values", async () => {
  const keyOf = (kind: string) => (kind === "lease" ? lease : registration).key;
  const said = await judge([
    ...golden.malformedKeys.map(({ hex }) => `${hex} null`),
    ...golden.malformedValues.map(({ kind, hex }) => `${keyOf(kind)} ${hex}`),
    `${registration.key} `,
    `${lease.key} `,
    `null ${registration.value}`,
  ]);
  expect(said.length).toBe(golden.malformedKeys.length + golden.malformedValues.length + 3);
  for (const { event } of said) expect(event).toBe("malformed");
});

it("gives up at a record with a byte too many, and every wait tells why", async () => {
  const topic = `state-${randomUUID().slice(0, 8)}`;
  const kafka = new Kafka({ brokers: inject("kafkaBootstrap").split(","), logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const reader = await ForeignMember.start({ bootstrap: inject("kafkaBootstrap"), topic, role: "controller" });
  expect(await reader.report()).toMatchObject({ registrations: 0, leases: 0 });

  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const bytes = (hex: string) => Buffer.from(hex, "hex");
  await producer.send({ topic, messages: [{ key: bytes(registration.key), value: bytes(`${registration.value}00`) }] });
  await producer.disconnect();
  await expect(reader.next("leading")).rejects.toThrow(
    "ended with 3: Gave up the partition: offset 0: value with 1 bytes",
  );
  await expect(reader.close()).rejects.toThrow("1 bytes too many");
});
