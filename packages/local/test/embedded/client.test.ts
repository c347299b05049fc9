import { setTimeout as sleep } from "node:timers/promises";
import { CoordinationClient, FencedError, FencingToken, KrabkaError, MemberId, Role } from "@krabka/client";
import { EmbeddedTransport, type OpenOptions } from "@krabka/local";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bundle } from "../bundle.js";
import { Talker } from "./processes.js";
import { type Temporary, temporary } from "./temporary.js";

const TOPIC = "commands";
const ROLE = Role.of("controller");
const LEASE_MS = 1000;

let place: Temporary;
let closing: (() => Promise<unknown>)[] = [];

beforeEach(async () => {
  place = await temporary();
});
afterEach(async () => {
  for (const close of closing.reverse()) await close();
  closing = [];
  await place.remove();
});

const valuesOf = async (transport: EmbeddedTransport): Promise<Map<string, bigint>> => {
  const values = new Map<string, bigint>();
  for await (const { value, offset } of transport.readTopic({ topic: TOPIC, partition: 0 })) {
    values.set(Buffer.from(value ?? []).toString(), offset);
  }
  return values;
};

describe("The client on the embedded transport, in one process", () => {
  const open = async (options: Partial<OpenOptions> = {}) => {
    const transport = await EmbeddedTransport.open({ directory: place.directory, topics: { [TOPIC]: 1 }, ...options });
    closing.push(() => transport.close());
    return transport;
  };

  it("acquires, writes, hands over at once on resigning, and refuses the former leader", async () => {
    const transport = await open();
    const [one, other] = [0, 1].map(() => new CoordinationClient(transport, { ownsTransport: false }));
    if (one === undefined || other === undefined) throw new Error("two clients are needed");
    closing.push(
      () => one.close(),
      () => other.close(),
    );
    const first = await one.acquire(ROLE, MemberId.of("node-1"));
    const before = first.token;
    await first.write({ topic: TOPIC, key: "device-7", value: "by 1" });
    const waiting = other.acquire(ROLE, MemberId.of("node-2"), { timeoutMs: 5000 });
    await sleep(20);
    const atMs = performance.now();
    await first.resign();
    const second = await waiting;
    expect(performance.now() - atMs).toBeLessThan(1000);
    expect(FencingToken.compare(second.token, before)).toBe(1);
    await second.write({ topic: TOPIC, key: "device-7", value: "by 2" });
    expect((await one.describe(ROLE)).isAuthoritative(second.token)).toBe(true);
    await expect(first.write({ topic: TOPIC, key: "device-7", value: "zombie" })).rejects.toThrow();
    expect([...(await valuesOf(transport)).keys()]).toEqual(["by 1", "by 2"]);
  });

  it("refuses a leader that does not know that it was deposed, from the mint on", async () => {
    const transport = await open();
    const client = new CoordinationClient(transport, { ownsTransport: false });
    closing.push(() => client.close());
    const leadership = await client.acquire(ROLE, MemberId.of("node-1"));
    await transport.openSession(ROLE, { transactionTimeoutMs: 1000, mayMint: () => true });
    const error: unknown = await leadership.write({ topic: TOPIC, value: "zombie" }).catch((reason) => reason);
    expect(FencedError.is(error)).toBe(true);
    expect(leadership.isLeader).toBe(false);
    expect([...(await valuesOf(transport)).keys()]).toEqual([]);
  });

  it("leads 200 roles at once, and each of them writes", async () => {
    const transport = await open();
    const client = new CoordinationClient(transport, { ownsTransport: false });
    closing.push(() => client.close());
    const roles = Array.from({ length: 200 }, (_, index) => Role.of(`shard-${index}`));
    const leaderships = await Promise.all(roles.map((role) => client.acquire(role, MemberId.of("node-1"))));
    await Promise.all(leaderships.map((one, index) => one.write({ topic: TOPIC, value: `shard-${index}` })));
    expect((await valuesOf(transport)).size).toBe(200);
    await Promise.all(leaderships.map((one) => one.resign()));
  });

  it("leads again after a restart, with a higher token, and has all that was acknowledged", async () => {
    let last: FencingToken | undefined;
    for (let life = 0; life < 3; life++) {
      const transport = await EmbeddedTransport.open({ directory: place.directory, topics: { [TOPIC]: 1 } });
      const client = new CoordinationClient(transport, { leaseMs: LEASE_MS });
      const leadership = await client.acquire(ROLE, MemberId.of("node-1"), { timeoutMs: 5000 });
      if (last !== undefined) expect(FencingToken.compare(leadership.token, last)).toBe(1);
      last = leadership.token;
      await leadership.write({ topic: TOPIC, value: `life ${life}` });
      expect((await valuesOf(transport)).size).toBe(life + 1);
      // Without a farewell: as if the process had gone.
      await transport.close();
      await client.close();
    }
  });

  it("shows consumers what was written, from any offset, and lets them wait for more", async () => {
    const transport = await open();
    const client = new CoordinationClient(transport, { ownsTransport: false });
    closing.push(() => client.close());
    const leadership = await client.acquire(ROLE, MemberId.of("node-1"));
    await leadership.write({ topic: TOPIC, key: "a", value: "x" });
    const stop = new AbortController();
    const seen: string[] = [];
    const tail = (async () => {
      for await (const record of transport.tail({ topic: TOPIC, partition: 0 }, { from: 1n, signal: stop.signal })) {
        const token = record.headers.find(({ key }) => key === "krabka-token");
        expect(FencingToken.parse(Buffer.from(token?.value ?? []).toString())).toEqual(leadership.token);
        seen.push(`${record.offset} ${Buffer.from(record.key ?? []).toString()}`);
        if (seen.length === 2) stop.abort();
      }
    })();
    for (const key of ["b", "c"]) await leadership.write({ topic: TOPIC, key, value: "x" });
    const error: unknown = await tail.catch((reason) => reason);
    expect(KrabkaError.is(error) && error.code).toBe("ABORTED");
    expect(seen).toEqual(["1 b", "2 c"]);
    const beyond = transport.readTopic({ topic: TOPIC, partition: 0 }, { from: 9n });
    await expect(beyond.next()).rejects.toThrow("keeps the offsets 0 to 3");
  });
});

describe("The client in several processes on one directory", () => {
  const members = new Map<string, Talker>();
  let script = "";

  const start = async (name: string): Promise<Talker> => {
    script = await bundle("embedded/member.ts", `${place.directory}/..`);
    const member = new Talker(script, [name, place.directory, TOPIC, String(LEASE_MS)]);
    members.set(name, member);
    closing.push(() => member.kill());
    await member.hear("ready");
    return member;
  };

  /** Every write that any process was told is there at its offset, none that was refused, and tokens only grew. */
  const expectTruth = async (): Promise<void> => {
    const transport = await EmbeddedTransport.openOrConnect({ directory: place.directory });
    const values = await valuesOf(transport);
    let written = 0;
    for (const member of members.values()) {
      for (const { kind, text } of member.said) {
        const [first = "", second = ""] = text.split(" ");
        if (kind === "written") {
          expect(values.get(second), text).toBe(BigInt(first));
          written += 1;
        }
        if (kind === "refused" && second !== "UNKNOWN_OUTCOME") expect(values.has(first), text).toBe(false);
      }
    }
    expect(written).toBeGreaterThan(0);
    await transport.close();
    members.clear();
  };

  const tokenOf = async (member: Talker, from = 0): Promise<FencingToken> =>
    FencingToken.parse((await member.hear("leading", from)).text);

  it("hands over to another process within moments of resigning", async () => {
    const one = await start("one");
    const before = await tokenOf(one);
    const other = await start("other");
    await one.hear("written");
    one.tell("resign");
    const after = await tokenOf(other);
    expect((await one.hear("lost")).text).toBe("resigned");
    expect(FencingToken.compare(after, before)).toBe(1);
    await other.hear("written");
    await expectTruth();
  });

  it("kill -9 of the leader's process: the other leads after the lease", async () => {
    const one = await start("one");
    const other = await start("other");
    one.tell("resign");
    const before = await tokenOf(other);
    await other.hear("written");
    const from = one.said.length;
    await other.kill();
    const after = await tokenOf(one, from);
    expect(FencingToken.compare(after, before)).toBe(1);
    await one.hear("written", from);
    await expectTruth();
  });

  it("kill -9 of the owner's process: another owns the directory, and the leader leads on under its token", async () => {
    const one = await start("one");
    const other = await start("other");
    one.tell("resign");
    const token = await tokenOf(other);
    await other.hear("written");
    one.tell("status");
    expect((await one.hear("status")).text).toBe("owner");
    await one.kill();
    const from = other.said.length;
    await other.hear("written", from + 20);
    other.tell("status");
    expect((await other.hear("status", from)).text).toBe("owner");
    expect(other.said.slice(from).filter(({ kind }) => kind === "lost")).toEqual([]);
    expect((await tokenOf(other)).equals(token)).toBe(true);
    await expectTruth();
  });

  it("kill -9 of the owner that also leads: another process owns and leads", async () => {
    const one = await start("one");
    const before = await tokenOf(one);
    const other = await start("other");
    await one.hear("written");
    await one.kill();
    const after = await tokenOf(other);
    expect(FencingToken.compare(after, before)).toBe(1);
    await other.hear("written");
    await expectTruth();
  });

  it("a process that was stopped for longer than its lease is deposed, and reads on without a gap", async () => {
    const one = await start("one");
    const other = await start("other");
    one.tell("resign");
    await tokenOf(other);
    const from = one.said.length;
    other.signal("SIGSTOP");
    await tokenOf(one, from);
    await one.hear("written", from);
    other.signal("SIGCONT");
    await other.hear("lost");
    const since = other.said.length;
    one.tell("resign");
    await tokenOf(other, since);
    await expectTruth();
  });
});

describe("The client while the owner is away for long", () => {
  it("loses its leadership by its own clock, and goes on with all that was acknowledged when the owner is back", async () => {
    const { directory, socketPath } = place;
    const script = await bundle("embedded/owner.ts", `${directory}/..`);
    const first = new Talker(script, [directory, socketPath]);
    closing.push(() => first.kill());
    await first.hear("ready");
    const transport = EmbeddedTransport.connect({ socketPath, topics: { [TOPIC]: 1 }, requestTimeoutMs: 300 });
    const client = new CoordinationClient(transport, { leaseMs: 500 });
    closing.push(() => client.close());
    const leadership = await client.acquire(ROLE, MemberId.of("node-1"), { timeoutMs: 5000 });
    const before = leadership.token;
    await leadership.write({ topic: TOPIC, value: "before" });
    const lost = new Promise<string>((resolve) => {
      leadership.signal.addEventListener("abort", () => resolve(leadership.loss?.reason ?? ""));
    });
    await first.kill();
    expect(await lost).toBe("expired");
    await expect(leadership.write({ topic: TOPIC, value: "too late" })).rejects.toThrow();
    await expect(client.describe(ROLE)).rejects.toMatchObject({ code: "UNREACHABLE" });
    const second = new Talker(script, [directory, socketPath]);
    closing.push(() => second.kill());
    await second.hear("ready");
    const again = await client.acquire(ROLE, MemberId.of("node-1"), { timeoutMs: 5000 });
    expect(FencingToken.compare(again.token, before)).toBe(1);
    await again.write({ topic: TOPIC, value: "after" });
    expect([...(await valuesOf(transport)).keys()]).toEqual(["before", "after"]);
  });
});
