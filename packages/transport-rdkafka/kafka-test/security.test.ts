import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { memberRights, type Right, SecuredKafka } from "../../transport-kafkajs/kafka-test/secured-kafka.js";
import { RdKafkaTransport } from "../src/index.js";

const MEMBER = MemberId.of("node-1");
const LIMIT = { timeoutMs: 20_000 };
const PROMPT_MS = 5_000;

/** librdkafka asks for a coordinator of the group that it insists on, although nothing is committed there. */
const GROUP: Right = { operation: "DESCRIBE", on: "GROUP", name: "krabka-", prefixed: true };
const WRITE_COMMANDS: Right = { operation: "WRITE", on: "TOPIC", name: "commands" };

let kafka: SecuredKafka;
const opened: CoordinationClient[] = [];

beforeAll(async () => {
  kafka = await SecuredKafka.start(["member", "blind", "powerless"]);
  const leadership = await kafka.operator.acquire(Role.of("setup"), MEMBER, LIMIT);
  await leadership.resign();
  await kafka.admin.createTopics({ topics: [{ topic: "commands", numPartitions: 1 }], waitForLeaders: true });
  await kafka.allow("member", ...memberRights("role-a"), GROUP, WRITE_COMMANDS);
});

afterEach(() => Promise.all(opened.splice(0).map((client) => client.close())));
afterAll(() => kafka?.close());

const clientOf = (username: string, mechanism = "SCRAM-SHA-512"): CoordinationClient => {
  const brokers = {
    "bootstrap.servers": kafka.secure.saslSsl,
    "security.protocol": "sasl_ssl",
    "ssl.ca.pem": kafka.secure.ca,
    "sasl.mechanisms": mechanism,
    "sasl.username": username,
    "sasl.password": `${username}-secret`,
  };
  const client = new CoordinationClient(new RdKafkaTransport({ brokers }), { leaseMs: 3_000 });
  opened.push(client);
  return client;
};

it.each(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])("a user by %s over TLS leads and writes", async (mechanism) => {
  const leadership = await clientOf("member", mechanism).acquire(Role.of("role-a"), MEMBER, LIMIT);
  await leadership.write({ topic: "commands", value: "x" });
  await leadership.resign();
});

describe("B15: a right that is missing ends acquire at once, and leaves no registration", () => {
  const cases = [
    { what: "Write on the transactional id", user: "member", role: "role-b", names: '"role-b"' },
    { what: "Write on it, with Describe", user: "powerless", role: "role-c", names: '"role-c"' },
    { what: "Read on the coordination topic", user: "blind", role: "role-a", names: '"__coordination_state"' },
  ];

  beforeAll(async () => {
    const [read, ...rest] = memberRights("role-a");
    await kafka.allow("blind", ...rest, GROUP);
    await kafka.allow("powerless", ...(read === undefined ? [] : [read]), ...rest.slice(0, 2), GROUP);
    await kafka.allow("powerless", { operation: "DESCRIBE", on: "TRANSACTIONAL_ID", name: "role-c" });
  });

  it.each(cases)("$what", async ({ user, role, names }) => {
    const startedAtMs = performance.now();
    await expect(clientOf(user).acquire(Role.of(role), MEMBER, LIMIT)).rejects.toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining(names),
    });
    expect(performance.now() - startedAtMs).toBeLessThan(PROMPT_MS);
    expect(await kafka.rosterOf(Role.of(role))).toEqual([]);
  });
});
