import { Deadline, encodeUtf8, KrabkaError, Role } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { BrokerHost } from "../../src/embedded/broker/broker-host.js";
import { encodeRequest } from "../../src/embedded/broker/request-codec.js";
import { BrokerClient } from "../../src/embedded/link/broker-client.js";
import { systemClock } from "../../src/system-clock.js";
import { Disk } from "../disk.js";
import { type Temporary, temporary } from "./temporary.js";

const ROLE = Role.of("role");
const SESSION = { transactionTimeoutMs: 1000, mayMint: () => true };
const TOPICS = { log: 1 };

let place: Temporary;
let closing: { close(): Promise<void> }[] = [];

beforeEach(async () => {
  place = await temporary();
});
afterEach(async () => {
  for (const transport of closing) await transport.close();
  closing = [];
  await place.remove();
});

const record = (value: string) => ({ topic: "log", key: null, value: encodeUtf8(value), headers: [] });

const valuesOf = async (transport: EmbeddedTransport): Promise<string[]> => {
  const values: string[] = [];
  for await (const { value } of transport.readTopic({ topic: "log", partition: 0 })) {
    values.push(Buffer.from(value ?? []).toString());
  }
  return values;
};

describe("Whoever comes first owns the directory", () => {
  it("of six that come at once exactly one owns it, and when it goes exactly one other does", async () => {
    const { directory } = place;
    const all = await Promise.all(
      Array.from({ length: 6 }, () => EmbeddedTransport.openOrConnect({ directory, topics: TOPICS })),
    );
    closing.push(...all);
    let left = all;
    for (const count of [6, 5, 4]) {
      expect(left.length).toBe(count);
      await Promise.all(left.map((transport) => transport.prepare()));
      await Promise.all(left.map((transport) => transport.describe(ROLE)));
      const owners = left.filter((transport) => transport.status().isOwner);
      expect(owners.length).toBe(1);
      await owners[0]?.close();
      left = left.filter((transport) => transport !== owners[0]);
    }
  });

  it("a session and its unanswered write outlive the change of owner, in the process that takes over too", async () => {
    const { directory } = place;
    const first = await EmbeddedTransport.openOrConnect({ directory, topics: TOPICS });
    closing.push(first);
    await first.prepare();
    const second = await EmbeddedTransport.openOrConnect({ directory });
    closing.push(second);
    const session = await second.openSession(ROLE, SESSION);
    const writes = Array.from({ length: 30 }, (_, index) =>
      session.append({ topic: "log", partition: 0 }, [record(`${index}`)]),
    );
    await writes[3];
    await first.close();
    const outcomes = await Promise.all(writes);
    expect(outcomes.map(({ status }) => status)).toEqual(outcomes.map(() => "committed"));
    expect(await valuesOf(second)).toEqual(outcomes.map((_, index) => `${index}`));
    expect(second.status().isOwner).toBe(true);
    expect((await second.describe(ROLE)).pair).toEqual(session.pair);
  });
});

describe("An owner whose storage failed", () => {
  const open = async (disk: Disk) => {
    const transport = await EmbeddedTransport.open({
      directory: "/data/log",
      fileSystem: disk.process(),
      topics: TOPICS,
    });
    closing.push(transport);
    await transport.prepare();
    return transport;
  };

  it("opens its directory again, and a write that failed meanwhile is there once", async () => {
    for (const reachesDisk of [true, false]) {
      const disk = new Disk();
      const transport = await open(disk);
      const session = await transport.openSession(ROLE, SESSION);
      let failures = 0;
      disk.faults.sync = () => {
        failures += 1;
        delete disk.faults.sync;
        throw new Error("EIO");
      };
      // With the file back at its old length the write is gone for sure; else the next opening finds it.
      disk.faults.before = (call) => {
        if (call === "truncate" && reachesDisk && failures === 1) throw new Error("EIO");
      };
      const outcome = await session.commit([record("once")]);
      expect([failures, outcome.status]).toEqual([1, "committed"]);
      expect(session.mustRemint).toBe(true);
      await session.remint();
      expect((await session.commit([record("next")])).status).toBe("committed");
      expect(await valuesOf(transport)).toEqual(["once", "next"]);
      await transport.close();
    }
  });

  it("refuses while the disk stays bad, within the limits of the calls, and closes all the same", async () => {
    const disk = new Disk();
    const transport = await open(disk);
    const session = await transport.openSession(ROLE, SESSION);
    disk.faults.before = (call) => {
      if (call !== "lock") throw new Error("EIO");
    };
    const outcome = await session.commit([record("lost")], { timeoutMs: 100 });
    expect(outcome.status).toBe("unknown");
    const error: unknown = await transport.describe(ROLE, { timeoutMs: 100 }).catch((reason) => reason);
    expect(KrabkaError.is(error) && error.code).toBe("UNREACHABLE");
    expect(transport.status().isOwner).toBe(false);
  });
});

describe("Another transport of the owner's process", () => {
  it("shares the broker, has a coordination topic of its own, and ends with the owner", async () => {
    const owner = await EmbeddedTransport.open({ directory: place.directory, topics: TOPICS });
    closing.push(owner);
    await owner.prepare();
    const sibling = owner.sibling({ topic: "other_coordination", partitions: 2 });
    closing.push(sibling);
    expect((await sibling.prepare()).topic).toEqual({ name: "other_coordination", partitions: 2 });
    const session = await sibling.openSession(ROLE, SESSION);
    expect((await owner.describe(ROLE)).pair).toEqual(session.pair);
    expect(sibling.status().isOwner).toBe(true);
    const tail = sibling.tail({ topic: "log", partition: 0 }).next();
    const ended = tail.catch((error: unknown) => error);
    await owner.close();
    for (const error of [await ended, await sibling.describe(ROLE).catch((reason: unknown) => reason)]) {
      expect(KrabkaError.is(error) && error.code).toBe("CLOSED");
    }
  });
});

describe("A client that the broker forgot while it was connected", () => {
  it("is known again at once, and what it asked meanwhile is executed once, not lost", async () => {
    const host = await BrokerHost.open({ directory: place.directory }, undefined, systemClock);
    const client = new BrokerClient(
      {
        where: "the broker",
        connect: (id, seen, listener) => host.connect(id, seen, listener),
        close: () => host.close(),
      },
      systemClock,
    );
    closing.push(client);
    await client.ready(new Deadline(systemClock, undefined, 5000));
    const register = encodeRequest({ kind: "register-client" });
    await Promise.all(
      Array.from({ length: 10_000 }, (_, index) =>
        host.broker.submit(register, { client: `${index}`.padStart(32, "0"), sequence: 0n, acked: 0n }),
      ),
    );
    const asked = ["one", "other"].map((role) => client.send({ kind: "mint", role }));
    expect(await Promise.all(asked.map(({ answer }) => answer))).toEqual([
      { status: "minted", pair: { producerId: 0n, epoch: 0 }, settled: null },
      { status: "minted", pair: { producerId: 1n, epoch: 0 }, settled: null },
    ]);
  });
});
