import { connect as connectTls } from "node:tls";
import { type KafkaCluster, type SecureAccess, startKafka } from "@krabka/tooling-kafka";
import { Kafka, type KafkaConfig, logLevel, type SASLOptions } from "kafkajs";
import { afterAll, beforeAll, expect, test } from "vitest";

let cluster: KafkaCluster;
let secure: SecureAccess;

beforeAll(async () => {
  const users = { admin: "admin-secret", member: "member-secret" };
  cluster = await startKafka({ security: { users, superUsers: ["admin"] } });
  if (cluster.secure === undefined) throw new Error("no secured listeners");
  secure = cluster.secure;
});

afterAll(() => cluster?.close());

async function listTopics(config: Pick<KafkaConfig, "brokers" | "ssl" | "sasl">): Promise<string[]> {
  const admin = new Kafka({ ...config, logLevel: logLevel.NOTHING, retry: { retries: 0 } }).admin();
  try {
    await admin.connect();
    return await admin.listTopics();
  } finally {
    await admin.disconnect();
  }
}

const sasl = (mechanism: string, username: string, password = `${username}-secret`) =>
  ({ mechanism, username, password }) as SASLOptions;

test.each(["plain", "scram-sha-256", "scram-sha-512"])("%s users get in, with TLS and without", async (mechanism) => {
  const ssl = { ca: secure.ca };
  await listTopics({ brokers: [secure.saslSsl], ssl, sasl: sasl(mechanism, "member") });
  await listTopics({ brokers: [secure.saslPlaintext], sasl: sasl(mechanism, "member") });
});

test.each(["plain", "scram-sha-256", "scram-sha-512"])("a wrong %s password is refused", async (mechanism) => {
  const listed = listTopics({ brokers: [secure.saslPlaintext], sasl: sasl(mechanism, "admin", "member-secret") });
  await expect(listed).rejects.toThrow(/authentication failed/i);
});

test("topics are hidden from a user without ACLs, and shown to a super user", async () => {
  const ssl = { ca: secure.ca };
  const admin = new Kafka({ brokers: [secure.ssl], ssl, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: "hidden" }], waitForLeaders: true });
  await admin.disconnect();
  expect(await listTopics({ brokers: [secure.saslSsl], ssl, sasl: sasl("plain", "member") })).toEqual([]);
  expect(await listTopics({ brokers: [secure.saslSsl], ssl, sasl: sasl("plain", "admin") })).toContain("hidden");
});

test("the broker's certificate is its own authority", async () => {
  const [host, port] = secure.ssl.split(":");
  const authorized = await new Promise((resolve, reject) => {
    const socket = connectTls({ host, port: Number(port), ca: secure.ca }, () => {
      resolve(socket.authorized);
      socket.destroy();
    });
    socket.once("error", reject);
  });
  expect(authorized).toBe(true);
});

test.each([
  [{ users: { "a,b": "x" } }, '"a,b" cannot be a user'],
  [{ users: { a: "x]" } }, 'password of "a"'],
  [{ users: { a: "x" }, superUsers: ["b"] }, 'super user "b"'],
])("%j is refused", async (security, message) => {
  await expect(startKafka({ security })).rejects.toThrow(message);
});
