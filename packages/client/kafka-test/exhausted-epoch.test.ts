import { CoordinationClient, KrabkaError, MemberId, Role } from "@krabka/client";
import { coordinatorOf, startKafka } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import { expect, it } from "vitest";

const LEASE_MS = 5_000;
const PASSING = new Set(["BUSY", "UNREACHABLE", "TIMEOUT"]);
const FOREVER = { transactionTimeoutMs: 10_000, mayMint: () => true };

// Slow: an epoch has to be counted up to its end, 32,766 mints.
it("a role whose coordinator moved and whose epoch is exhausted gets a lower producer id, and terms still order the leaders", {
  timeout: 300_000,
}, async () => {
  await using cluster = await startKafka({ brokers: 3 });
  const kafka = { brokers: cluster.bootstrap.split(","), logLevel: logLevel.NOTHING };
  const strangers = new KafkaJsTransport({ kafka });
  await strangers.prepare();
  // The first mint of a cluster creates its transaction state.
  await mintOnce(strangers, Role.of("first"));

  // Roles on all coordinators take the lower blocks of producer ids, so that the role under test gets a higher one.
  const roles: { role: Role; producerId: bigint; mintedBy: number }[] = [];
  for (let i = 0; i < 12; i++) {
    const role = Role.of(`role-${i}`);
    const mintedBy = await coordinatorOf(cluster.bootstrap, role);
    const session = await strangers.openSession(role, FOREVER);
    roles.push({ role, producerId: session.pair.producerId, mintedBy });
    await session.close();
  }
  const blocks = new Set(roles.map(({ producerId }) => producerId / 1_000n));
  expect(blocks.size).toBe(3);
  const { role, producerId, mintedBy } = roles.reduce((a, b) => (a.producerId > b.producerId ? a : b));

  await using first = new CoordinationClient(new KafkaJsTransport({ kafka }), { leaseMs: LEASE_MS });
  const a = await first.acquire(role, MemberId.of("a"), { timeoutMs: 30_000 });
  expect(a.token.producerId).toBe(producerId);
  const before = a.token;

  // The broker with the highest block goes down for good, so whoever coordinates the role from now on has a lower one.
  await cluster.brokers.find(({ id }) => id === mintedBy)?.stop();

  let pair = await mintOnce(strangers, role);
  while (pair.producerId === producerId) pair = await mintOnce(strangers, role);
  expect(pair.producerId).toBeLessThan(producerId);

  await using second = new CoordinationClient(new KafkaJsTransport({ kafka }), { leaseMs: LEASE_MS });
  const b = await second.acquire(role, MemberId.of("b"), { timeoutMs: 60_000 });
  console.log(`before ${before}, after ${b.token}`);
  expect(b.token.producerId).toBeLessThan(before.producerId);
  expect(b.token.compareTo(before)).toBe(1);
  expect(b.token.term).toBeGreaterThan(before.term);
  await expect(a.write({ topic: "anything", value: "stale" })).rejects.toMatchObject({
    code: expect.stringMatching(/^(FENCED|NOT_LEADER)$/),
  });
  await strangers.close();
});

/** One mint by a stranger, waited out where the coordinator is just moving. */
async function mintOnce(transport: KafkaJsTransport, role: Role) {
  for (;;) {
    try {
      const session = await transport.openSession(role, FOREVER);
      await session.close();
      return session.pair;
    } catch (error) {
      if (!KrabkaError.is(error) || !PASSING.has(error.code)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
