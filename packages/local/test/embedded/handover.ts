import { mkdtemp, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { CoordinationClient, type Leadership, MemberId, Role } from "@krabka/client";
import { EmbeddedTransport } from "@krabka/local";

// What a guarded write and a handover take, and what an fsync of the same disk does. The directory may be given.
const ROUNDS = 200;
const base = await mkdtemp(join(process.argv[2] ?? process.cwd(), "krabka-handover-"));

const report = (what: string, tookMs: number[]): void => {
  tookMs.sort((a, b) => a - b);
  const at = (share: number): string => (tookMs[Math.floor(tookMs.length * share)] ?? 0).toFixed(2);
  console.log(`${what}: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`);
};

const timed = async (work: (round: number) => Promise<unknown>): Promise<number[]> => {
  const tookMs: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const startedMs = performance.now();
    await work(round);
    tookMs.push(performance.now() - startedMs);
  }
  return tookMs;
};

const file = await open(join(base, "bare"), "w");
report(
  "append of 200 bytes and fdatasync",
  await timed(async (round) => {
    await file.write(Buffer.alloc(200), 0, 200, round * 200);
    await file.datasync();
  }),
);
await file.close();

const socketPath = join(base, "s");
const owner = await EmbeddedTransport.open({ directory: join(base, "log"), serve: { socketPath }, topics: { log: 1 } });
const guest = EmbeddedTransport.connect({ socketPath });
const role = Role.of("controller");
for (const [way, transports] of [
  ["in the owner's process", [owner, owner]],
  ["over the socket", [guest, guest]],
] as const) {
  const clients = transports.map((transport) => new CoordinationClient(transport, { ownsTransport: false }));
  const acquire = (turn: number): Promise<Leadership> =>
    (clients[turn % 2] as CoordinationClient).acquire(role, MemberId.of(`node-${turn % 2}`));
  let leader = await acquire(0);
  report(`guarded write ${way}`, await timed(() => leader.write({ topic: "log", key: "k", value: "x".repeat(100) })));
  const handovers: number[] = [];
  for (let turn = 1; turn <= ROUNDS; turn++) {
    const next = acquire(turn);
    // Until the standby is in line.
    await new Promise((resolve) => setTimeout(resolve, 10));
    const startedMs = performance.now();
    const resigned = leader.resign();
    leader = await next;
    handovers.push(performance.now() - startedMs);
    await resigned;
  }
  report(`handover ${way}`, handovers);
  await leader.resign();
  for (const client of clients) await client.close();
}
const sessions = await Promise.all(
  Array.from({ length: 64 }, (_, index) =>
    guest.openSession(Role.of(`role-${index}`), { transactionTimeoutMs: 1000, mayMint: () => true }),
  ),
);
const startedMs = performance.now();
const record = { topic: "log", key: null, value: new Uint8Array(100), headers: [] };
await Promise.all(
  sessions.map(async (session) => {
    for (let write = 0; write < ROUNDS; write++) await session.commit([record]);
  }),
);
const perSecond = (sessions.length * ROUNDS * 1000) / (performance.now() - startedMs);
console.log(`${sessions.length} roles writing at once over the socket: ${Math.round(perSecond)} writes a second`);
await guest.close();
await owner.close();
await rm(base, { recursive: true });
