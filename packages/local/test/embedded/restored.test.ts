import { cp, rename, rm } from "node:fs/promises";
import { CoordinationClient, MemberId } from "@krabka/client";
import { encodeUtf8, KrabkaError, Role } from "@krabka/core";
import { EmbeddedTransport, LocalError } from "@krabka/local";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Openings } from "../../src/embedded/broker/openings.js";
import { ByteReader, ByteWriter } from "../../src/state/binary.js";
import { type Temporary, temporary } from "./temporary.js";

const ROLE = Role.of("role");
const SESSION = { transactionTimeoutMs: 1000, mayMint: () => true };
const LOG = { topic: "log", partition: 0 };

let place: Temporary;
let closing: { close(): Promise<void> }[] = [];

beforeEach(async () => {
  place = await temporary();
});
afterEach(async () => {
  for (const one of closing.reverse()) await one.close();
  closing = [];
  await place.remove();
});

const owner = async (options: { readonly raiseCountersBy?: bigint } = {}) => {
  const { directory, socketPath } = place;
  const opened = await EmbeddedTransport.open({ directory, serve: { socketPath }, topics: { log: 1 }, ...options });
  closing.push(opened);
  await opened.prepare();
  return opened;
};

const guest = async () => {
  const connected = EmbeddedTransport.connect({ socketPath: place.socketPath });
  closing.push(connected);
  await connected.prepare();
  return connected;
};

const backUp = () => cp(place.directory, `${place.directory}.backup`, { recursive: true });

const restore = async () => {
  await rm(place.directory, { recursive: true });
  await cp(`${place.directory}.backup`, place.directory, { recursive: true });
};

const record = (value: string) => ({ ...LOG, key: null, value: encodeUtf8(value), headers: [] });

const write = async (transport: EmbeddedTransport, role: Role, values: readonly string[]) => {
  const session = await transport.openSession(role, SESSION);
  for (const value of values) expect((await session.commit([record(value)])).status).toBe("committed");
  return session;
};

const valuesOf = async (transport: EmbeddedTransport, from: bigint | "earliest" = "earliest"): Promise<string[]> => {
  const values: string[] = [];
  for await (const { value } of transport.readTopic(LOG, { from })) values.push(Buffer.from(value ?? []).toString());
  return values;
};

/** What a promise rejects with, as its code and the code of its cause. */
const codesOf = async (promise: Promise<unknown>): Promise<readonly [string, string]> => {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  const cause = error instanceof Error ? error.cause : undefined;
  return [KrabkaError.is(error) ? error.code : String(error), LocalError.is(cause) ? cause.code : String(cause)];
};

const ENDED = ["CLOSED", "OTHER_HISTORY"];

describe("H12: A backup that is put back", () => {
  it("ends whoever saw more: no session, feed, read or call goes on, however long the copy became since", async () => {
    const first = await owner();
    await write(first, ROLE, ["before"]);
    await first.close();
    await backUp();
    const second = await owner();
    const member = await guest();
    const session = await write(member, ROLE, ["lost"]);
    const errors: Error[] = [];
    const feed = member.follow(ROLE, {
      onRecords: () => undefined,
      onUncommitted: () => undefined,
      onReset: () => undefined,
      onMalformed: () => undefined,
      onError: (error) => errors.push(error),
    });
    await feed.sync();
    const tail = member.tail(LOG, { from: 2n }).next();
    const tailEnds = codesOf(tail);
    await second.close();
    await restore();

    const third = await EmbeddedTransport.open({ directory: place.directory, topics: { log: 1 } });
    closing.push(third);
    const rival = await write(third, ROLE, ["new", "other", "more", "and more"]);
    // The very pair that the member has, given out once more.
    expect(rival.pair).toEqual(session.pair);
    await third.close();
    const fourth = await owner();

    expect(await tailEnds).toEqual(ENDED);
    expect(await codesOf(session.commit([record("stale")]))).toEqual(ENDED);
    expect(await codesOf(session.remint())).toEqual(ENDED);
    expect(await codesOf(feed.sync())).toEqual(ENDED);
    expect(await codesOf(member.describe(ROLE))).toEqual(ENDED);
    expect(await codesOf(member.openSession(ROLE, SESSION))).toEqual(ENDED);
    expect(await codesOf(Promise.resolve().then(() => member.follow(ROLE, {} as never)))).toEqual(ENDED);
    expect(errors.at(-1)?.message).toContain("A backup may have been put back");
    expect(await valuesOf(fourth)).toEqual(["before", "new", "other", "more", "and more"]);
    // A new transport of the same process knows nothing yet, and takes part.
    await write(await guest(), Role.of("other"), ["fresh"]);
  });

  it("is found out also where the copy was made in the middle of the opening that the member saw", async () => {
    const first = await owner();
    const member = await guest();
    const session = await write(member, ROLE, ["kept"]);
    await backUp();
    expect((await session.commit([record("lost")])).status).toBe("committed");
    await first.close();
    await restore();
    await owner();
    expect(await codesOf(session.commit([record("stale")]))).toEqual(ENDED);
  });

  it("changes nothing for those who saw no more than it has, such as after every other restart", async () => {
    const first = await owner();
    const member = await guest();
    const session = await write(member, ROLE, ["one"]);
    await backUp();
    await first.close();
    await restore();
    const second = await owner();
    expect((await session.commit([record("two")])).status).toBe("committed");
    await second.close();
    const third = await owner();
    expect((await session.commit([record("three")])).status).toBe("committed");
    expect(await valuesOf(third)).toEqual(["one", "two", "three"]);
  });

  it("is not owned by a process that knows better: it frees the directory for one that does not", async () => {
    const { directory, socketPath } = place;
    const open = async () => {
      const transport = await EmbeddedTransport.openOrConnect({ directory, socketPath, topics: { log: 1 } });
      closing.push(transport);
      await transport.prepare();
      return transport;
    };
    const first = await open();
    await backUp();
    const second = await open();
    await write(second, ROLE, ["lost"]);
    // The copy is there before the first one lets go, so that the second one finds nothing else.
    await rename(directory, `${directory}.old`);
    await cp(`${directory}.backup`, directory, { recursive: true });
    await first.close();
    expect(await codesOf(second.describe(ROLE))).toEqual(ENDED);
    expect(second.status()).toMatchObject({ isOwner: false, isConnected: false });
    const third = await open();
    expect(third.status().isOwner).toBe(true);
    expect(await valuesOf(third)).toEqual([]);
  });

  it("ends a leadership and its campaign with the reason", async () => {
    const first = await owner();
    await backUp();
    const member = await guest();
    const client = new CoordinationClient(member, { leaseMs: 20_000, renewMs: 50 });
    const events: string[] = [];
    let lead = (): void => undefined;
    const leads = new Promise<void>((resolve) => {
      lead = resolve;
    });
    const campaign = client.campaign(ROLE, MemberId.of("a"), async (leadership, signal) => {
      lead();
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
      events.push(String(leadership.loss?.reason));
    });
    const ended = campaign.catch((error: unknown) => error);
    await leads;
    await first.close();
    await restore();
    await owner();
    const error = await ended;
    expect(events).toEqual(["closed"]);
    expect(KrabkaError.is(error) && error.code).toBe("NOT_LEADER");
    expect(await codesOf(Promise.reject(KrabkaError.is(error) ? error.cause : error))).toEqual(ENDED);
    await client.close();
  });

  it("gives out nothing again that was given out since, once it is opened with raised counters", async () => {
    const first = await owner();
    await write(first, ROLE, ["kept"]);
    await first.close();
    await backUp();
    const second = await owner();
    const lost = await write(second, ROLE, ["lost", "lost too"]);
    await second.close();
    await restore();
    const third = await owner({ raiseCountersBy: 1000n });
    const session = await third.openSession(ROLE, SESSION);
    expect(session.pair.producerId).toBeGreaterThan(lost.pair.producerId);
    const outcome = await session.commit([record("new")]);
    expect(outcome.status === "committed" && outcome.positions[0]?.offset).toBe(1001n);
    const reader = await guest();
    // Where a consumer stood in what was lost.
    expect(await valuesOf(reader, 3n)).toEqual(["new"]);
    expect(await valuesOf(reader)).toEqual(["kept", "new"]);
    await third.close();
    const fourth = await owner();
    expect(await valuesOf(fourth)).toEqual(["kept", "new"]);
    const again = await fourth.openSession(ROLE, SESSION);
    expect(again.pair).toEqual({ producerId: session.pair.producerId, epoch: 1 });
  });
});

describe("A log's openings", () => {
  const three = (): Openings => {
    const openings = new Openings();
    for (const [name, from] of [
      ["a", 1n],
      ["b", 10n],
      ["c", 20n],
    ] as const)
      openings.begin(name, from);
    return openings;
  };

  it("contain what was seen of each, up to where the next one begins, and of the last up to the end", () => {
    const openings = three();
    const fits = (opening: string, position: bigint) =>
      openings.contradiction({ opening, position }, 25n) === undefined;
    expect([fits("a", 10n), fits("a", 11n)]).toEqual([true, false]);
    expect([fits("b", 0n), fits("b", 20n), fits("b", 21n)]).toEqual([true, true, false]);
    expect([fits("c", 25n), fits("c", 26n)]).toEqual([true, false]);
    expect(fits("d", 0n)).toBe(false);
  });

  it("are the same after they were written and read back, and a thousand of them are remembered", () => {
    const openings = three();
    for (let index = 0n; index < 1000n; index++) openings.begin(`later ${index}`, 30n + index);
    const writer = new ByteWriter();
    openings.encode(writer);
    const read = Openings.decode(new ByteReader(writer.finish()));
    for (const one of [openings, read]) {
      expect(one.current).toBe("later 999");
      expect(one.contradiction({ opening: "c", position: 20n }, 2000n)).toContain("which this log does not have");
      expect(one.contradiction({ opening: "later 0", position: 31n }, 2000n)).toBeUndefined();
    }
  });
});

describe("A reader's offset", () => {
  it("is refused as too old where records are gone, and as another history's where none were yet", async () => {
    const transport = await EmbeddedTransport.open({
      directory: place.directory,
      topics: { log: 1 },
      retentionRecords: 2,
    });
    closing.push(transport);
    await transport.prepare();
    await write(transport, ROLE, ["0", "1", "2", "3"]);
    expect(await codesOf(valuesOf(transport, 1n))).toEqual(["INVALID_ARGUMENT", "TOO_OLD"]);
    expect(await codesOf(transport.tail(LOG, { from: 1n }).next())).toEqual(["INVALID_ARGUMENT", "TOO_OLD"]);
    expect(await codesOf(valuesOf(transport, 5n))).toEqual(["INVALID_ARGUMENT", "OTHER_HISTORY"]);
    expect(await codesOf(transport.tail(LOG, { from: 5n }).next())).toEqual(["INVALID_ARGUMENT", "OTHER_HISTORY"]);
    expect(await valuesOf(transport, 2n)).toEqual(["2", "3"]);
    expect(await valuesOf(transport, 4n)).toEqual([]);
  });
});
