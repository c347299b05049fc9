import { encodeEntry, encodeUtf8, MemberId, NO_ATTRIBUTES, Role } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";

// Ever new roles, members and clients, and ever more records: says what the owner's process keeps in memory after each part.
const [directory = "", parts = "", rolesInPart = ""] = process.argv.slice(2);
const LANES = 32;
const TOPIC = "__coordination_state";
const socketPath = `${directory}.sock`;

const transport = await EmbeddedTransport.open({
  directory,
  serve: { socketPath },
  topics: { log: 2 },
  // One, so that it fills up soon.
  partitions: 1,
  maxRoles: 200,
  retentionBytes: 256 * 1024,
  checkpointAfterBytes: 256 * 1024,
});
await transport.prepare();

const keptBytes = (): number => {
  // Buffers that one collection frees are swept while the program goes on; the next collection waits for that.
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};

const lead = async (name: string): Promise<void> => {
  const role = Role.of(name);
  const member = MemberId.of(`member of ${name}`);
  const target = { topic: TOPIC, partition: 0 };
  await transport.appendUnfenced(target, [
    encodeEntry({ kind: "registration", role, member, registeredAtMs: 0n, attributes: NO_ATTRIBUTES }),
  ]);
  const session = await transport.openSession(role, { transactionTimeoutMs: 1000, mayMint: () => true });
  const lease = encodeEntry({
    kind: "lease",
    role,
    member,
    pair: session.pair,
    grantedAtMs: 0n,
    deadlineMs: 0n,
    term: undefined,
    attributes: NO_ATTRIBUTES,
  });
  for (let renewal = 0; renewal < 3; renewal++) {
    const { status } = await session.append(target, [lease]);
    if (status !== "committed") throw new Error(`a lease record of ${name} is ${status}`);
  }
  const { status } = await session.commit([{ topic: "log", key: null, value: encodeUtf8(name), headers: [] }]);
  if (status !== "committed") throw new Error(`a record of ${name} is ${status}`);
  await session.close();
};

const visit = async (): Promise<void> => {
  const guest = EmbeddedTransport.connect({ socketPath, partitions: 1 });
  await guest.prepare();
  await guest.close();
};

for (let part = 0; part < Number(parts); part++) {
  let left = Number(rolesInPart);
  const lane = async (): Promise<void> => {
    for (; left > 0; ) {
      left -= 1;
      const turn = left;
      await lead(`role ${part}.${turn}`);
      if (turn % 50 === 0) await visit();
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  process.send?.({ kind: "kept", text: String(keptBytes()) });
}
await transport.close();
