import { CoordinationClient, MemberId, Role } from "@krabka/client";
import { it } from "vitest";
import { memberRights, SecuredKafka } from "../../transport-kafkajs/kafka-test/secured-kafka.js";
import { RdKafkaTransport } from "../src/index.js";

it("explore", async () => {
  const k = await SecuredKafka.start(["member", "r0", "r1", "r2", "r3"]);
  const conf = (user: string, mechanism = "PLAIN", password = `${user}-secret`) => ({
    "bootstrap.servers": k.secure.saslSsl,
    "security.protocol": "sasl_ssl",
    "ssl.ca.pem": k.secure.ca,
    "sasl.mechanisms": mechanism,
    "sasl.username": user,
    "sasl.password": password,
  });
  const chain = (e: any): string =>
    e ? `${e.name}/${e.code}: ${e.message}` + (e.cause ? "\n     <- " + chain(e.cause) : "") : "";
  const attempt = async (what: string, brokers: any, role = "role-a", ms = 6000) => {
    const c = new CoordinationClient(
      new RdKafkaTransport({ brokers, logger: { warn: (d: object, m: string) => console.log("   log", d, m) } } as any),
      { leaseMs: 3000 },
    );
    const t = performance.now();
    try {
      const l = await c.acquire(Role.of(role), MemberId.of("m"), { timeoutMs: ms });
      const w = await l.write({ topic: "commands", value: "x" }).then(() => "written", chain);
      console.log(what, "OK", String(l.token), Math.round(performance.now() - t), w);
      await l.resign();
    } catch (e) {
      console.log(what, Math.round(performance.now() - t), "\n  ", chain(e));
    }
    const u = performance.now();
    await c.close();
    console.log("   closed", Math.round(performance.now() - u));
    console.log(
      "   roster",
      (await k.rosterOf(Role.of(role))).map((r) => r.member),
    );
  };
  const l = await k.operator.acquire(Role.of("setup"), MemberId.of("m"));
  await l.resign();
  await k.admin.createTopics({ topics: [{ topic: "commands", numPartitions: 1 }], waitForLeaders: true });
  await k.allow("member", ...memberRights("role-a"));
  await attempt("plain", conf("member"));
  await k.allow("member", { operation: "WRITE", on: "TOPIC", name: "commands" });
  await attempt("256", conf("member", "SCRAM-SHA-256"));
  await attempt("512", conf("member", "SCRAM-SHA-512"));
  await attempt("role-b", conf("member"), "role-b");
  await attempt("wrong", conf("member", "PLAIN", "x"));
  await attempt("wrong 256", conf("member", "SCRAM-SHA-256", "x"));
  const { "ssl.ca.pem": _, ...untrusting } = conf("member");
  await attempt("untrusted", untrusting);
  const all = memberRights("role-r");
  for (const [i, missing] of all.entries()) {
    await k.allow(`r${i}`, ...all.filter((r) => r !== missing), {
      operation: "DESCRIBE",
      on: missing.on,
      name: missing.name,
    });
    await attempt(`missing ${missing.operation} ${missing.on}`, conf(`r${i}`), "role-r");
  }
  await k.close();
}, 180000);
