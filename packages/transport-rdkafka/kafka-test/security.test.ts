import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type Failure, failureOf, PROMPT_MS } from "../../client/kafka-test/security/failure.js";
import { memberRights, type Right, SecuredKafka } from "../../client/kafka-test/security/secured-kafka.js";
import { type RdKafkaConfig, RdKafkaTransport } from "../src/index.js";

const MEMBER = MemberId.of("node-1");
const LIMIT = { timeoutMs: 20_000 };
const LEASE_MS = 3_000;

/** librdkafka asks for a coordinator of the group that it insists on, although nothing is committed there. */
const GROUP: Right = { operation: "DESCRIBE", on: "GROUP", name: "krabka-", prefixed: true };
const WRITE_COMMANDS: Right = { operation: "WRITE", on: "TOPIC", name: "commands" };
const USERS = ["member", "blind", "powerless", "mute", "mute-here", "groupless", "latecomer"];

let kafka: SecuredKafka;
const opened: CoordinationClient[] = [];

beforeAll(async () => {
  kafka = await SecuredKafka.start(USERS);
  const leadership = await kafka.operator.acquire(Role.of("setup"), MEMBER, LIMIT);
  await leadership.resign();
  const topics = ["commands", "secrets", "seen"].map((topic) => ({ topic, numPartitions: 1 }));
  await kafka.admin.createTopics({ topics, waitForLeaders: true });
  await kafka.allow("member", ...memberRights("role-a"), GROUP, WRITE_COMMANDS);
  await kafka.allow("member", { operation: "DESCRIBE", on: "TOPIC", name: "seen" });
});

afterEach(() => Promise.all(opened.splice(0).map((client) => client.close())));
afterAll(() => kafka?.close());

const configOf = (username: string, mechanism = "SCRAM-SHA-512"): RdKafkaConfig => ({
  "bootstrap.servers": kafka.secure.saslSsl,
  "security.protocol": "sasl_ssl",
  "ssl.ca.pem": kafka.secure.ca,
  "sasl.mechanisms": mechanism,
  "sasl.username": username,
  "sasl.password": `${username}-secret`,
});

/** A client that ends with the test. */
const clientWith = (brokers: RdKafkaConfig): CoordinationClient => {
  const client = new CoordinationClient(new RdKafkaTransport({ brokers }), { leaseMs: LEASE_MS });
  opened.push(client);
  return client;
};

const clientOf = (username: string, mechanism?: string): CoordinationClient =>
  clientWith(configOf(username, mechanism));

const expectRefusal = ({ code, message, tookMs }: Failure, names: string): void => {
  expect({ code, message }).toEqual({ code: "UNAUTHORIZED", message: expect.stringContaining(names) });
  expect(tookMs).toBeLessThan(PROMPT_MS);
};

it.each(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])("a user by %s over TLS leads and writes", async (mechanism) => {
  const leadership = await clientOf("member", mechanism).acquire(Role.of("role-a"), MEMBER, LIMIT);
  await leadership.write({ topic: "commands", value: "x" });
  await leadership.resign();
});

describe("a login that is refused ends a campaign at once, with the broker's words", () => {
  it.each([
    ["PLAIN", "Invalid username or password"],
    ["SCRAM-SHA-512", "invalid credentials"],
  ])("by %s", async (mechanism, words) => {
    const client = clientWith({ ...configOf("member", mechanism), "sasl.password": "wrong" });
    expectRefusal(await failureOf(client.campaign(Role.of("role-a"), MEMBER, () => undefined)), words);
  });

  it("by a mechanism that the broker does not have", async () => {
    const client = clientWith({
      ...configOf("member"),
      "sasl.mechanisms": "OAUTHBEARER",
      "enable.sasl.oauthbearer.unsecure.jwt": true,
      "sasl.oauthbearer.config": "principal=member",
    });
    expectRefusal(await failureOf(client.acquire(Role.of("role-a"), MEMBER, LIMIT)), "mechanism");
  });
});

describe("a connection that TLS does not allow is told within the time limit, with librdkafka's words", () => {
  it.each([
    ["certificate that is not trusted", { "ssl.ca.pem": "" }, "certificate verify failed"],
    ["plain text on a TLS listener", { "security.protocol": "sasl_plaintext" }, "connection closed by peer"],
  ])("%s", async (_, wrong, words) => {
    const config: Record<string, string | number | boolean> = { ...configOf("member"), ...wrong };
    if (config["ssl.ca.pem"] === "") delete config["ssl.ca.pem"];
    const call = clientWith(config).acquire(Role.of("role-a"), MEMBER, { timeoutMs: 2_000 });
    const { code, message, tookMs } = await failureOf(call);
    expect({ code, message }).toEqual({ code: "UNREACHABLE", message: expect.stringContaining(words) });
    expect(tookMs).toBeLessThan(3_000);
  });
});

describe("B15: a right that is missing ends acquire and campaign at once, and leaves no registration", () => {
  const cases = [
    {
      what: "Write on the transactional id",
      user: "member",
      role: "role-b",
      names: 'the right Write on transactional id "role-b"',
    },
    {
      what: "Write on it, with Describe",
      user: "powerless",
      role: "role-c",
      names: 'the right Write on transactional id "role-c"',
    },
    {
      what: "Read on the coordination topic",
      user: "blind",
      role: "role-a",
      names: 'the right Read on topic "__coordination_state"',
    },
    {
      what: "Write on any topic",
      user: "mute",
      role: "role-a",
      names: 'the right Write on topic "__coordination_state"',
    },
    {
      what: "Write on the coordination topic alone",
      user: "mute-here",
      role: "role-a",
      names: 'the right Write on topic "__coordination_state"',
    },
    {
      what: "Describe on the groups",
      user: "groupless",
      role: "role-a",
      names: 'the right Describe on groups with the prefix "krabka-"',
    },
  ];

  beforeAll(async () => {
    const [read, write, ...rest] = memberRights("role-a") as [Right, Right, ...Right[]];
    await kafka.allow("blind", write, ...rest, GROUP);
    await kafka.allow("mute", read, ...rest, GROUP);
    await kafka.allow("mute-here", read, ...rest, GROUP, WRITE_COMMANDS);
    await kafka.allow("groupless", read, write, ...rest);
    await kafka.allow("powerless", read, write, GROUP);
    await kafka.allow("powerless", { operation: "DESCRIBE", on: "TRANSACTIONAL_ID", name: "role-c" });
  });

  it.each(cases)("$what", async ({ user, role, names }) => {
    expectRefusal(await failureOf(clientOf(user).acquire(Role.of(role), MEMBER, LIMIT)), names);
    expectRefusal(await failureOf(clientOf(user).campaign(Role.of(role), MEMBER, () => undefined)), names);
    expect(await kafka.rosterOf(Role.of(role))).toEqual([]);
  });
});

describe("B15: with rights on role-a alone", () => {
  const [roleA, roleB] = [Role.of("role-a"), Role.of("role-b")];
  const right = 'the right Write on transactional id "role-b"';

  it("a member that leads role-a is refused role-b, leaves no registration there and goes on leading", async () => {
    const client = clientOf("member");
    const leadership = await client.acquire(roleA, MEMBER, LIMIT);
    expectRefusal(await failureOf(client.acquire(roleB, MEMBER, LIMIT)), right);
    expect(await kafka.rosterOf(roleB)).toEqual([]);
    await leadership.write({ topic: "commands", value: "x" });
    expect(leadership.isLeader).toBe(true);
  });

  it("a right that is granted later is enough: the same client leads role-b without a restart", async () => {
    await kafka.allow("latecomer", ...memberRights("role-a"), GROUP);
    const client = clientOf("latecomer");
    expectRefusal(await failureOf(client.acquire(roleB, MEMBER, LIMIT)), right);
    await kafka.allow("latecomer", { operation: "WRITE", on: "TRANSACTIONAL_ID", name: "role-b" });
    const leadership = await client.acquire(roleB, MEMBER, LIMIT);
    expect(leadership.isLeader).toBe(true);
    await leadership.resign();
  });

  it("a write to a topic without any right is refused by name, and the leadership goes on", async () => {
    const leadership = await clientOf("member").acquire(roleA, MEMBER, LIMIT);
    const { token } = leadership;
    expectRefusal(await failureOf(leadership.write({ topic: "secrets", value: "x" })), 'on topic "secrets"');
    await leadership.write({ topic: "commands", value: "x" });
    await leadership.renew();
    expect(leadership.token.equals(token)).toBe(true);
  });

  it("a write to a topic with Describe alone is refused by name, and its producer replaced under a later token", async () => {
    const client = clientOf("member");
    const before = await client.acquire(roleA, MEMBER, LIMIT);
    const { token } = before;
    const refusal = await failureOf(before.write({ topic: "seen", value: "x" }));
    expectRefusal(refusal, 'the right Write on topic "seen"');
    expect((await failureOf(before.write({ topic: "commands", value: "x" }))).code).toBe("FENCED");
    const after = await client.acquire(roleA, MEMBER, LIMIT);
    expect(after.token.compareTo(token)).toBe(1);
    await after.write({ topic: "commands", value: "x" });
  });

  it("a write to a topic that does not exist is told from one to a topic without rights", async () => {
    const leadership = await clientOf("member").acquire(roleA, MEMBER, LIMIT);
    await kafka.allow("member", { operation: "DESCRIBE", on: "TOPIC", name: "absent" });
    const { code } = await failureOf(leadership.write({ topic: "absent", value: "x" }));
    expect(code).toBe("UNKNOWN_TOPIC");
  });
});
