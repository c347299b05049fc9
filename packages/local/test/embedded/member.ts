import { setTimeout as sleep } from "node:timers/promises";
import { CoordinationClient, type Leadership, MemberId, Role } from "@krabka/client";
import { EmbeddedTransport } from "@krabka/local";

// Competes for a role, and while it leads, writes one record after the other and says what was acknowledged.
const [name = "", directory = "", topic = "", leaseMs = ""] = process.argv.slice(2);
const say = (kind: string, text = ""): void => void process.send?.({ kind, text });
process.on("disconnect", () => process.exit(1));

const transport = await EmbeddedTransport.openOrConnect({ directory, topics: { [topic]: 1 }, requestTimeoutMs: 2000 });
await transport.prepare();
say("ready", transport.status().isOwner ? "owner" : "guest");
const client = new CoordinationClient(transport, { leaseMs: Number(leaseMs) });
let leading: Leadership | undefined;
let count = 0;

process.on("message", (what: string) => {
  if (what === "resign") void leading?.resign();
  if (what === "status") say("status", transport.status().isOwner ? "owner" : "guest");
});

await client.campaign(Role.of("controller"), MemberId.of(name), async (leadership, signal) => {
  leading = leadership;
  say("leading", String(leadership.token));
  while (!signal.aborted) {
    count += 1;
    const value = `${name}.${count}`;
    try {
      const { offset } = await leadership.write({ topic, key: name, value });
      say("written", `${offset} ${value}`);
    } catch (error) {
      say("refused", `${value} ${(error as { code?: string }).code}`);
    }
    await sleep(5);
  }
  say("lost", leadership.loss?.reason ?? "");
});
