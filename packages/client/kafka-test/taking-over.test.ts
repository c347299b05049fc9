import { randomUUID } from "node:crypto";
import { CoordinationClient, type Leadership, MemberId, Role } from "@krabka/client";
import { startFaultProxy } from "@krabka/tooling-kafka";
import { KafkaJsTransport } from "@krabka/transport-kafkajs";
import { logLevel } from "kafkajs";
import { expect, inject, it } from "vitest";

const INIT_PRODUCER_ID = 22;
const HANDOVERS = 20;

it("each graceful resignation with three standbys costs exactly one mint, in the order of the roster", async () => {
  await using proxy = await startFaultProxy({ bootstrap: inject("kafkaBootstrap") });
  const clients = Array.from({ length: 4 }, () => {
    const transport = new KafkaJsTransport({
      kafka: { brokers: proxy.bootstrap.split(","), logLevel: logLevel.NOTHING },
    });
    return new CoordinationClient(transport, { leaseMs: 10_000 });
  });
  const role = Role.of(`handover-${randomUUID()}`);
  const line: { name: string; won: Promise<Leadership> }[] = [];
  let entered = 0;
  const enter = async (index: number) => {
    entered += 1;
    const name = `member-${entered}`;
    line.push({ name, won: (clients[index] as CoordinationClient).acquire(role, MemberId.of(name)) });
    // The order of the roster is the order in which the registrations reach the log.
    await registered(clients[index] as CoordinationClient, role, name);
  };
  for (let i = 0; i < clients.length; i++) await enter(i);
  const mintedBefore = proxy.requests(INIT_PRODUCER_ID);
  let former: Leadership | undefined;
  for (let i = 0; i < HANDOVERS; i++) {
    const next = line.shift() as { name: string; won: Promise<Leadership> };
    const leadership = await next.won;
    expect(leadership.member).toBe(next.name);
    if (former !== undefined) expect(leadership.token.compareTo(former.loss?.error.token as never)).toBe(1);
    former = leadership;
    await leadership.resign();
    await enter(i % clients.length);
  }
  await (line[0] as { won: Promise<Leadership> }).won;
  expect(proxy.requests(INIT_PRODUCER_ID) - mintedBefore).toBe(HANDOVERS);
  await Promise.all([
    ...line.map(({ won }) => won.catch(() => undefined)).slice(1),
    ...clients.map((client) => client.close()),
  ]);
});

async function registered(client: CoordinationClient, role: Role, name: string): Promise<void> {
  for await (const { roster } of client.observe(role)) if (roster.some(({ member }) => member === name)) return;
}
