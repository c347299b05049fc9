import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { MemberId, Role } from "@krabka/client";
import type { KafkaConfig, SASLOptions } from "kafkajs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type Failure, failureOf, PROMPT_MS } from "./failure.js";
import { memberRights, type Right, SESSION_MS, SecuredKafka } from "./secured-kafka.js";

const MEMBER = MemberId.of("node-1");
const MECHANISMS = ["plain", "scram-sha-256", "scram-sha-512"] as const;
const LIMIT = { timeoutMs: 20_000 };

const USERS = ["member", "limited", "latecomer", "reader", "stranger", "revoked", "r0", "r1", "r2", "r3"];

let kafka: SecuredKafka;

beforeAll(async () => {
  kafka = await SecuredKafka.start(USERS);
  const topics = ["commands", "secrets"].map((topic) => ({ topic, numPartitions: 1 }));
  await kafka.admin.createTopics({ topics, waitForLeaders: true });
});

afterEach(() => kafka.closeClients());
afterAll(() => kafka?.close());

const writeTo = (topic: string): Right => ({ operation: "WRITE", on: "TOPIC", name: topic });

describe("the coordination topic", () => {
  // First, while it does not exist.
  it("B15: that does not exist and may not be created is named, with the right that is missing", async () => {
    const describe: Right = { operation: "DESCRIBE", on: "TOPIC", name: "__coordination_state" };
    await kafka.allow("stranger", describe);
    const failure = await failureOf(kafka.client(kafka.as("stranger")).acquire(Role.of("role-a"), MEMBER, LIMIT));
    expect(failure.code).toBe("UNAUTHORIZED");
    expect(failure.message).toContain('the right Create on topic "__coordination_state"');
    expect(failure.tookMs).toBeLessThan(PROMPT_MS);
    await kafka.revoke("stranger", describe);
  });

  it("is created by a user with the right to", async () => {
    const leadership = await kafka.operator.acquire(Role.of("setup"), MEMBER, LIMIT);
    await leadership.resign();
    expect(await kafka.admin.listTopics()).toContain("__coordination_state");
  });
});

describe("a login", () => {
  beforeAll(() => kafka.allow("member", ...memberRights("role-login"), writeTo("commands")));

  const leadAndWrite = async (config: KafkaConfig): Promise<void> => {
    const leadership = await kafka.client(config).acquire(Role.of("role-login"), MEMBER, LIMIT);
    const position = await leadership.write({ topic: "commands", value: "x" });
    expect(position).toMatchObject({ topic: "commands", partition: 0 });
    await leadership.resign();
  };

  it.each(MECHANISMS)("by %s over TLS leads and writes with the rights of an ordinary user", async (mechanism) => {
    await leadAndWrite(kafka.as("member", { mechanism }));
  });

  it("without TLS leads and writes too", async () => {
    await leadAndWrite(kafka.withoutTls("member"));
  });

  it("by TLS alone leads and writes too", async () => {
    await leadAndWrite({ brokers: [kafka.secure.ssl], ssl: { ca: kafka.secure.ca } });
  });

  it("whose session the broker limits goes on leading, under the same token", async () => {
    const leadership = await kafka.client(kafka.withoutTls("member")).acquire(Role.of("role-login"), MEMBER, LIMIT);
    const { token } = leadership;
    for (let passedMs = 0; passedMs < 2.5 * SESSION_MS; passedMs += 500) {
      await leadership.write({ topic: "commands", value: "x" });
      await sleep(500);
    }
    expect(leadership.token.equals(token)).toBe(true);
    await leadership.resign();
  });

  it.each(MECHANISMS)("with a wrong %s password is refused at once, as such", async (mechanism) => {
    const client = kafka.client(kafka.as("member", { mechanism, password: "guessed" }));
    const failure = await failureOf(client.acquire(Role.of("role-login"), MEMBER, LIMIT));
    expect(failure).toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringMatching(/^127\.0\.0\.1:\d+ refused the credentials: SASL .* authentication failed/),
    });
    expect(failure.tookMs).toBeLessThan(PROMPT_MS);
  });

  it("with a wrong password ends a campaign, which would otherwise try for ever", async () => {
    const client = kafka.client(kafka.as("member", { password: "guessed" }));
    const campaign = client.campaign(Role.of("role-login"), MEMBER, () => undefined);
    expect(await failureOf(campaign)).toMatchObject({ code: "UNAUTHORIZED" });
  });

  it("by a mechanism that the broker lacks is refused", async () => {
    const sasl: SASLOptions = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: "token" }) };
    const client = kafka.client({ brokers: [kafka.secure.saslPlaintext], sasl });
    const failure = await failureOf(client.acquire(Role.of("role-login"), MEMBER, LIMIT));
    expect(failure).toMatchObject({ code: "UNAUTHORIZED", message: expect.stringMatching(/mechanism/i) });
    expect(failure.tookMs).toBeLessThan(PROMPT_MS);
  });

  it("on a listener that knows no users is refused", async () => {
    const { sasl, ssl } = kafka.as("member") as { sasl: SASLOptions; ssl: { ca: string } };
    const client = kafka.client({ brokers: [kafka.secure.ssl], ssl, sasl });
    const failure = await failureOf(client.acquire(Role.of("role-login"), MEMBER, LIMIT));
    expect(failure).toMatchObject({ code: "UNAUTHORIZED", message: expect.stringMatching(/SASL state/) });
  });

  it("that is cut off in the middle is repeated, not taken for a refusal", async () => {
    await using relay = await Relay.open(Number(kafka.secure.saslPlaintext.split(":")[1]));
    await leadAndWrite(kafka.withoutTls("member", `127.0.0.1:${relay.port}`));
    expect(relay.cuts).toBe(1);
  });
});

const SASL_AUTHENTICATE = 36;

/** Passes bytes to a broker, and cuts the first connection that sends a password. */
class Relay implements AsyncDisposable {
  readonly #server = createServer((client) => this.#serve(client));
  readonly #sockets = new Set<Socket>();
  readonly #target: number;
  cuts = 0;

  private constructor(target: number) {
    this.#target = target;
  }

  static async open(target: number): Promise<Relay> {
    const relay = new Relay(target);
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }

  #serve(client: Socket): void {
    const broker = connect(this.#target, "127.0.0.1");
    for (const socket of [client, broker]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.once("close", () => {
        client.destroy();
        broker.destroy();
      });
    }
    broker.pipe(client);
    client.on("data", (request: Buffer) => {
      if (this.cuts === 0 && request.readInt16BE(4) === SASL_AUTHENTICATE) {
        this.cuts += 1;
        client.destroy();
      } else broker.write(request);
    });
  }
}

describe("a connection that TLS does not allow is told within the time limit, with the reason", () => {
  const acquire = (config: KafkaConfig) =>
    failureOf(kafka.client(config).acquire(Role.of("role-login"), MEMBER, { timeoutMs: 2_000 }));

  it.each([
    ["certificate that is not trusted", true, "self-signed certificate"],
    ["certificate for another host", "elsewhere", "does not match certificate's altnames"],
    ["plain text on a TLS listener", false, "Closed connection"],
  ] as const)("%s", async (_, ssl, reason) => {
    const named = typeof ssl === "string" ? { ca: kafka.secure.ca, servername: ssl } : ssl;
    const failure = await acquire({ ...kafka.as("member"), ssl: named });
    expect(failure.code).toBe("UNREACHABLE");
    expect(failure.message).toContain(`No broker answered; tried ${kafka.secure.saslSsl}`);
    expect(failure.message).toContain(reason);
    expect(failure.tookMs).toBeLessThan(3_000);
  });
});

describe("B15: with rights on role-a alone", () => {
  const roleA = Role.of("role-a");
  const roleB = Role.of("role-b");

  beforeAll(() => kafka.allow("limited", ...memberRights(roleA), writeTo("commands")));

  const expectRefusal = ({ code, role, message, tookMs }: Failure): void => {
    expect(code).toBe("UNAUTHORIZED");
    expect(role).toBe("role-b");
    expect(message).toContain('the right Write on transactional id "role-b"');
    expect(tookMs).toBeLessThan(PROMPT_MS);
  };

  it("a member leads role-a, is refused role-b, leaves no registration there and goes on leading", async () => {
    const client = kafka.client(kafka.as("limited"));
    const leadership = await client.acquire(roleA, MEMBER, LIMIT);
    expectRefusal(await failureOf(client.acquire(roleB, MEMBER, { timeoutMs: 60_000 })));
    expectRefusal(await failureOf(client.campaign(roleB, MEMBER, () => undefined)));
    expect(await kafka.rosterOf(roleB)).toEqual([]);
    await leadership.write({ topic: "commands", value: "x" });
    expect(await leadership.verify()).toBe(true);
  });

  it("a member is refused role-b while somebody else leads it, who is not disturbed", async () => {
    const leader = await kafka.operator.acquire(roleB, MemberId.of("other"), LIMIT);
    const { token } = leader;
    const client = kafka.client(kafka.as("limited"));
    expectRefusal(await failureOf(client.acquire(roleB, MEMBER, { timeoutMs: 60_000 })));
    expect((await kafka.rosterOf(roleB)).map(({ member }) => member)).toEqual(["other"]);
    expect(await leader.verify()).toBe(true);
    expect(leader.token.equals(token)).toBe(true);
    await leader.resign();
  });

  it("a right that is granted later is enough: the same client leads role-b without a restart", async () => {
    await kafka.allow("latecomer", ...memberRights("role-a"));
    const client = kafka.client(kafka.as("latecomer"));
    expectRefusal(await failureOf(client.acquire(roleB, MEMBER, LIMIT)));
    await kafka.allow("latecomer", { operation: "WRITE", on: "TRANSACTIONAL_ID", name: "role-b" });
    const leadership = await client.acquire(roleB, MEMBER, LIMIT);
    expect(leadership.isLeader).toBe(true);
    await leadership.resign();
  });

  it("a write to a forbidden topic is refused by name, and the leadership goes on", async () => {
    const leadership = await kafka.client(kafka.as("limited")).acquire(roleA, MEMBER, LIMIT);
    const { token } = leadership;
    expect(await failureOf(leadership.write({ topic: "secrets", value: "x" }))).toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining('on topic "secrets"'),
    });
    await leadership.write({ topic: "commands", value: "x" });
    await leadership.renew();
    expect(leadership.token.equals(token)).toBe(true);
  });

  it("one topic that is forbidden keeps the whole write from becoming visible", async () => {
    const leadership = await kafka.client(kafka.as("limited")).acquire(roleA, MEMBER, LIMIT);
    const before = await kafka.admin.fetchTopicOffsets("commands");
    const records = ["commands", "secrets"].map((topic) => ({ topic, value: "x" }));
    expect(await failureOf(leadership.write(records))).toMatchObject({ code: "UNAUTHORIZED" });
    expect(await kafka.admin.fetchTopicOffsets("commands")).toEqual(before);
  });
});

describe("the least set of rights", () => {
  const named = {
    READ: "Read",
    WRITE: "Write",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    DESCRIBE: "Describe",
    CREATE: "Create",
  };
  const role = Role.of("role-least");
  const all = memberRights(role);
  const cases = all.map((right, index) => ({
    user: `r${index}`,
    missing: right,
    right: `${named[right.operation]} on ${right.on === "TOPIC" ? "topic" : "transactional id"} "${right.name}"`,
  }));

  it.each(cases)("B15: misses $right: told for good, and no registration is left", async ({ user, missing, right }) => {
    const rest = all.filter((kept) => kept !== missing);
    // What Read or Write on the resource included otherwise, so that the right itself is what is missed.
    await kafka.allow(user, ...rest, { operation: "DESCRIBE", on: missing.on, name: missing.name });
    const client = kafka.client(kafka.as(user));
    const failure = await failureOf(client.campaign(role, MEMBER, () => undefined));
    expect(failure.code).toBe("UNAUTHORIZED");
    expect(failure.message).toContain(`the right ${right}`);
    expect(failure.tookMs).toBeLessThan(PROMPT_MS);
    expect(await kafka.rosterOf(role)).toEqual([]);
  });

  it("of an observer shows the role and who may write, and does not let it lead", async () => {
    await kafka.allow(
      "reader",
      { operation: "READ", on: "TOPIC", name: "__coordination_state" },
      { operation: "DESCRIBE_CONFIGS", on: "TOPIC", name: "__coordination_state" },
      { operation: "DESCRIBE", on: "TRANSACTIONAL_ID", name: role },
    );
    const leader = await kafka.operator.acquire(role, MEMBER, LIMIT);
    const client = kafka.client(kafka.as("reader"));
    for await (const { leader: seen } of client.observe(role)) {
      expect(seen?.token.equals(leader.token)).toBe(true);
      break;
    }
    const status = await client.describe(role);
    expect(status.isAuthoritative(leader.token)).toBe(true);
    expect(await failureOf(client.acquire(role, MemberId.of("reader"), LIMIT))).toMatchObject({ code: "UNAUTHORIZED" });
    expect(await leader.verify()).toBe(true);
    await leader.resign();
  });

  it("that loses the role's right has its next write refused", async () => {
    const right: Right = { operation: "WRITE", on: "TRANSACTIONAL_ID", name: "role-revoked" };
    await kafka.allow("revoked", ...memberRights("role-revoked"), writeTo("commands"));
    const leadership = await kafka.client(kafka.as("revoked")).acquire(Role.of("role-revoked"), MEMBER, LIMIT);
    await leadership.write({ topic: "commands", value: "x" });
    await kafka.revoke("revoked", right);
    expect(await failureOf(leadership.write({ topic: "commands", value: "x" }))).toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining('the right Write on transactional id "role-revoked"'),
    });
    await kafka.allow("revoked", right);
    await leadership.write({ topic: "commands", value: "x" });
  });
});
