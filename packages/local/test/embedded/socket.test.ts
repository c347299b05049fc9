import { once } from "node:events";
import { readdirSync, renameSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { dirname } from "node:path";
import {
  type Clock,
  type CoordinationRecord,
  encodeEntry,
  encodeUtf8,
  KrabkaError,
  MemberId,
  NO_ATTRIBUTES,
  partitionForRole,
  Role,
} from "@krabka/core";
import { EmbeddedTransport, LocalError } from "@krabka/local";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FrameReader, frameOf } from "../../src/embedded/socket/frames.js";
import {
  decodeServerMessage,
  encodeClientMessage,
  encodeServerMessage,
  FRAME_OVERHEAD_BYTES,
} from "../../src/embedded/socket/messages.js";
import { systemClock } from "../../src/system-clock.js";
import { FaultProxy } from "./fault-proxy.js";
import { type Temporary, temporary } from "./temporary.js";

const ROLE = Role.of("role");
const SESSION = { transactionTimeoutMs: 1000, mayMint: () => true };

let place: Temporary;
let closing: { close(): Promise<void> | void }[] = [];

beforeEach(async () => {
  place = await temporary();
});
afterEach(async () => {
  for (const one of closing.reverse()) await one.close();
  closing = [];
  await place.remove();
});

const owner = async (options: Partial<Parameters<typeof EmbeddedTransport.open>[0]> = {}) => {
  const { directory, socketPath } = place;
  const opened = await EmbeddedTransport.open({ directory, serve: { socketPath }, topics: { log: 1 }, ...options });
  closing.push(opened);
  await opened.prepare();
  return opened;
};

const guest = (options: Partial<Parameters<typeof EmbeddedTransport.connect>[0]> = {}) => {
  const connected = EmbeddedTransport.connect({ socketPath: place.socketPath, ...options });
  closing.push(connected);
  return connected;
};

const rejection = async (promise: Promise<unknown>): Promise<KrabkaError | LocalError> => {
  const error = await promise.then(
    () => new Error("it resolved"),
    (reason: unknown) => reason,
  );
  if (KrabkaError.is(error) || LocalError.is(error)) return error;
  throw error;
};

/** A connection that says what it likes. */
const raw = async (): Promise<Socket> => {
  const socket = connect(place.socketPath);
  socket.on("error", () => undefined);
  closing.push({ close: () => void socket.destroy() });
  await once(socket, "connect");
  return socket;
};

const hello = (client: string, version = 2): Uint8Array =>
  frameOf(encodeClientMessage({ kind: "hello", version, client, seen: undefined }));

/** Resolves with what the other side said before it ended the connection. */
const ending = async (socket: Socket): Promise<string> => {
  let said = "";
  socket.on("data", (chunk) => {
    said += chunk.toString("latin1");
  });
  if (!socket.closed) await once(socket, "close");
  return said;
};

const registration = (member: string) =>
  encodeEntry({
    kind: "registration",
    role: ROLE,
    member: MemberId.of(member),
    registeredAtMs: 0n,
    attributes: NO_ATTRIBUTES,
  });

const follow = (transport: EmbeddedTransport) => {
  const seen: bigint[] = [];
  const errors: Error[] = [];
  let resets = 0;
  const feed = transport.follow(ROLE, {
    onRecords: (records: readonly CoordinationRecord[]) => seen.push(...records.map(({ offset }) => offset)),
    onUncommitted: () => undefined,
    onReset: () => {
      resets += 1;
      seen.length = 0;
    },
    onMalformed: () => undefined,
    onError: (error) => errors.push(error),
  });
  return { seen, errors, feed, resets: () => resets };
};

const home = { topic: "__coordination_state", partition: partitionForRole(ROLE) };

const SLOW_MS = 12_345;

/** The machine's clock, but the owner's patience with slow readers ends when the test says so. */
const patienceClock = () => {
  const ends: (() => void)[] = [];
  let begin: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const clock: Clock = {
    ...systemClock,
    setTimer: (delayMs, fire) => {
      if (delayMs !== SLOW_MS) return systemClock.setTimer(delayMs, fire);
      ends.push(fire);
      begin();
      return { cancel: () => undefined };
    },
  };
  return { clock, begun, end: () => ends[0]?.() };
};

/** More than a socket takes while nobody reads. */
const bigRecords = () => {
  const filler = { key: "filler", value: encodeUtf8("x".repeat(60_000)) };
  return Array.from({ length: 40 }, () => ({ ...registration("big"), headers: [filler] }));
};

describe("The owner's socket", () => {
  it("is there for its user alone", async () => {
    await owner();
    expect(statSync(place.socketPath).mode & 0o777).toBe(0o600);
    expect(statSync(place.socketPath).isSocket()).toBe(true);
    expect(readdirSync(dirname(place.socketPath)).sort()).toEqual(["log", "owner.sock"]);
  });

  it("goes with the owner, and a file that a killed one left does not stop the next", async () => {
    const first = await owner();
    await first.close();
    expect(statSync(place.socketPath, { throwIfNoEntry: false })).toBeUndefined();
    const dead = createServer().listen(`${place.socketPath}.dead`);
    await once(dead, "listening");
    renameSync(`${place.socketPath}.dead`, place.socketPath);
    dead.close();
    await once(dead, "close");
    expect(statSync(place.socketPath).isSocket()).toBe(true);
    await owner();
    expect((await guest().prepare()).topic.name).toBe(home.topic);
  });

  it("is not taken from the owner of another directory, and the lock stays free for a better try", async () => {
    await owner();
    const { socketPath } = place;
    const directory = `${place.directory}-2`;
    const error = await rejection(EmbeddedTransport.open({ directory, serve: { socketPath } }));
    expect([error.code, error.message]).toEqual([
      "IN_USE",
      `${socketPath} is served by the owner of another directory`,
    ]);
    closing.push(await EmbeddedTransport.open({ directory }));
    await guest().prepare();
  });

  it("H10: a second owner of one directory is refused with a clear error", async () => {
    await owner();
    const error = await rejection(EmbeddedTransport.open({ directory: place.directory }));
    expect(error.code).toBe("IN_USE");
    expect(error.message).toContain("is open already");
  });

  it("is not made where a file is that is no socket, or under a path that is too long", async () => {
    const { directory, socketPath } = place;
    writeFileSync(socketPath, "precious");
    const error = await rejection(EmbeddedTransport.open({ directory, serve: { socketPath } }));
    expect([error.code, statSync(socketPath).size]).toEqual(["INVALID_ARGUMENT", 8]);
    const long = `/tmp/${"x".repeat(100)}`;
    const tooLong = await rejection(EmbeddedTransport.open({ directory, serve: { socketPath: long } }));
    expect(tooLong.message).toContain("1 to 98 bytes");
    expect(() => EmbeddedTransport.connect({ socketPath: long })).toThrow("1 to 98 bytes");
    const neither = await rejection(EmbeddedTransport.openOrConnect({ directory, socketPath: long }));
    expect(neither.code).toBe("INVALID_ARGUMENT");
  });

  it("ends a connection that speaks nonsense, at any stage, and serves the others on", async () => {
    await owner();
    const good = guest();
    await good.prepare();
    const client = "a".repeat(32);
    const message = (bytes: readonly number[]) => frameOf(Uint8Array.from(bytes));
    const badRequest = encodeClientMessage({ kind: "request", sequence: 1n, acked: 0n, request: Uint8Array.of(99) });
    const mangled = encodeClientMessage({ kind: "sync", id: 1, feed: 1 });
    const nonsense: readonly (readonly Uint8Array[])[] = [
      [Buffer.from("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")],
      [message([])],
      [message([0, 1, 2, 3])],
      [message([200])],
      [frameOf(encodeClientMessage({ kind: "sync", id: 1, feed: 1 }))],
      [hello("not an id")],
      [hello(client), message([77, 1])],
      [hello(client), frameOf(badRequest)],
      [hello(client), frameOf(Uint8Array.of(...mangled, 0))],
      [hello(client), hello(client)],
    ];
    for (const [index, frames] of nonsense.entries()) {
      const socket = await raw();
      const said = ending(socket);
      for (const frame of frames) {
        socket.write(frame);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      expect((await said).length, `nonsense ${index}`).toBeGreaterThan(0);
    }
    expect(await good.partitionsOf("log")).toBe(1);
  });

  it("takes no frame that is larger than allowed, before it was sent whole", async () => {
    const maxWriteBytes = 64 * 1024;
    await owner({ maxWriteBytes });
    for (const [greeting, length] of [
      [[], 5000],
      [[hello("b".repeat(32))], maxWriteBytes + FRAME_OVERHEAD_BYTES + 1],
    ] as const) {
      const socket = await raw();
      const said = ending(socket);
      for (const frame of greeting) socket.write(frame);
      await new Promise((resolve) => setTimeout(resolve, 20));
      const start = new Uint8Array(4);
      new DataView(start.buffer).setUint32(0, length);
      socket.write(start);
      expect(await said).toContain(`a frame of ${length} bytes`);
    }
    const good = guest();
    await good.prepare();
    const session = await good.openSession(ROLE, SESSION);
    const value = encodeUtf8("x".repeat(100_000));
    const write = session.commit([{ topic: "log", key: null, value, headers: [] }]);
    expect((await rejection(write)).code).toBe("INVALID_ARGUMENT");
  });

  it("tells a client of another version so, on both sides, at once", async () => {
    await owner();
    const socket = await raw();
    const said = ending(socket);
    socket.write(hello("c".repeat(32), 7));
    expect(await said).toContain("version 2 of the socket protocol, this client version 7");

    const other = createServer((peer) => {
      peer.on("error", () => undefined);
      peer.end(frameOf(encodeServerMessage({ kind: "refused", version: 9, message: "The owner speaks version 9" })));
    });
    other.listen(`${place.socketPath}.9`);
    closing.push({ close: () => void other.close() });
    const early = guest({ socketPath: `${place.socketPath}.9` });
    const error = await rejection(early.prepare({ timeoutMs: 20_000 }));
    expect([error.code, error.message]).toEqual(["UNSUPPORTED", "The owner speaks version 9"]);
  });

  it("ends a client's older connection when the client comes with a newer one", async () => {
    await owner();
    const client = "d".repeat(32);
    const [older, newer] = [await raw(), await raw()];
    const ended = ending(older);
    older.write(hello(client));
    await once(older, "data");
    newer.write(hello(client));
    await once(newer, "data");
    older.write(frameOf(encodeClientMessage({ kind: "cancel", id: 1 })));
    await ended;
    expect(newer.destroyed).toBe(false);
  });
});

describe("A process that takes part", () => {
  it("is told UNREACHABLE within its limit while there is no owner, and nothing was sent", async () => {
    const alone = guest();
    expect((await rejection(alone.prepare({ timeoutMs: 100 }))).code).toBe("UNREACHABLE");
    expect((await rejection(alone.openSession(ROLE, { ...SESSION, timeoutMs: 50 }))).code).toBe("UNREACHABLE");
    expect((await rejection(alone.describe(ROLE, { timeoutMs: 50 }))).code).toBe("UNREACHABLE");
  });

  it("waits within its own bounds for a preparation that an earlier call began", async () => {
    const alone = guest();
    const patient = rejection(alone.prepare({ timeoutMs: 60_000 }));
    const controller = new AbortController();
    const aborted = rejection(alone.prepare({ timeoutMs: 60_000, signal: controller.signal }));
    controller.abort();
    expect((await aborted).code).toBe("ABORTED");
    expect((await rejection(alone.prepare({ timeoutMs: 50 }))).code).toBe("UNREACHABLE");
    await alone.close();
    expect((await patient).code).toBe("CLOSED");
  });

  it("goes on with the same session and feed after the owner came back: no gap, nothing twice", async () => {
    const first = await owner();
    const transport = guest();
    await transport.prepare();
    const session = await transport.openSession(ROLE, SESSION);
    const log = follow(transport);
    const partition = (await transport.appendUnfenced(home, [registration("a")]))[0];
    await log.feed.sync();
    await first.close();
    const write = session.commit([{ topic: "log", key: null, value: encodeUtf8("meanwhile"), headers: [] }]);
    const mint = await rejection(transport.openSession(Role.of("other"), { ...SESSION, timeoutMs: 50 }));
    expect(mint.code).toBe("UNREACHABLE");
    await owner();
    expect((await write).status).toBe("committed");
    await transport.appendUnfenced(home, [registration("b")]);
    await log.feed.sync();
    expect([log.seen, log.resets()]).toEqual([[partition?.offset, 1n], 0]);
    expect(log.errors.every((error) => KrabkaError.is(error) && error.code === "UNREACHABLE")).toBe(true);
    expect((await transport.describe(ROLE)).pair).toEqual(session.pair);
  });

  it("reads on where it was after it was too slow and was dropped: no gap, nothing twice, and it knows why", async () => {
    const patience = patienceClock();
    const first = await owner({ slowReaderMs: SLOW_MS, clock: patience.clock });
    const proxy = await FaultProxy.listen(`${place.socketPath}.p`, place.socketPath);
    closing.push(proxy);
    const transport = guest({ socketPath: `${place.socketPath}.p` });
    await transport.prepare();
    const log = follow(transport);
    await log.feed.sync();
    const resume = proxy.stall();
    await first.appendUnfenced(home, bigRecords());
    patience.end();
    resume();
    await log.feed.sync();
    expect([log.seen, log.resets()]).toEqual([[...Array(40).keys()].map(BigInt), 0]);
    expect(log.errors.map(({ message }) => message).join()).toContain("This client read nothing for 12345 ms");
  });

  it("that reads nothing costs no more than a bit of memory, however much it asked for, and gets all of it later", async () => {
    const first = await owner();
    const value = encodeUtf8("x".repeat(60_000));
    await first.appendUnfenced(
      { topic: "log", partition: 0 },
      Array.from({ length: 10 }, () => ({ key: null, value, headers: [] })),
    );
    const stuck = await raw();
    stuck.write(hello("f".repeat(32)));
    await once(stuck, "data");
    stuck.pause();
    const before = process.memoryUsage().arrayBuffers;
    const fetches = 1000;
    const target = { topic: "log", partition: 0 };
    const query = { kind: "fetch", target, from: 0n, waits: true } as const;
    const asked = Array.from({ length: fetches }, (_, id) => encodeClientMessage({ kind: "query", id, query }));
    stuck.write(Buffer.concat(asked.map(frameOf)));
    // By the time that this one is served the others were heard.
    await guest().prepare();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(50_000_000);
    const frames = new FrameReader(1_000_000);
    let answers = 0;
    stuck.on("data", (chunk: Uint8Array) => {
      for (const frame of frames.take(chunk)) if (decodeServerMessage(frame).kind === "result") answers += 1;
    });
    stuck.resume();
    while (answers < fetches) await once(stuck, "data");
  });

  it("is told why its connection ends when it reads nothing for too long, and holds up no other reader", async () => {
    const patience = patienceClock();
    const first = await owner({ slowReaderMs: SLOW_MS, clock: patience.clock });
    const log = follow(first);
    await first.appendUnfenced(home, bigRecords());
    const stuck = await raw();
    stuck.write(hello("e".repeat(32)));
    await once(stuck, "data");
    stuck.pause();
    const spec = { ...home, role: ROLE };
    stuck.write(frameOf(encodeClientMessage({ kind: "follow", feed: 1, spec, from: 0n })));
    await patience.begun;
    await log.feed.sync();
    expect(log.seen).toEqual([...Array(40).keys()].map(BigInt));
    patience.end();
    const said = ending(stuck);
    stuck.resume();
    expect(await said).toContain("This client read nothing for 12345 ms");
  });
});
