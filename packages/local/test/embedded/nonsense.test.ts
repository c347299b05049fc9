import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { encodeUtf8, KrabkaError, Role } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import { afterEach, beforeEach, expect, it } from "vitest";
import { encodeRecord } from "../../src/embedded/broker/record-bytes.js";
import type { BrokerRequest } from "../../src/embedded/broker/request.js";
import { encodeRequest } from "../../src/embedded/broker/request-codec.js";
import { FrameReader, frameOf } from "../../src/embedded/socket/frames.js";
import { type ClientMessage, encodeClientMessage } from "../../src/embedded/socket/messages.js";
import { randomFrom, runs } from "../log-script.js";
import { type Temporary, temporary } from "./temporary.js";

const ROLE = Role.of("role");
const LOG = { topic: "log", partition: 0 };
const HOME = { topic: "__coordination_state", partition: 0 };
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

const open = async (): Promise<EmbeddedTransport> => {
  const { directory, socketPath } = place;
  const owner = await EmbeddedTransport.open({ directory, serve: { socketPath }, topics: { log: 1 }, partitions: 1 });
  closing.push(owner);
  await owner.prepare();
  return owner;
};

const write = async (transport: EmbeddedTransport, value: string) => {
  const session = await transport.openSession(ROLE, SESSION);
  const outcome = await session.commit([{ ...LOG, key: null, value: encodeUtf8(value), headers: [] }]);
  await session.close();
  return outcome.status;
};

const pair = { producerId: 0n, epoch: 0 };
const batch = {
  ...LOG,
  records: [encodeRecord({ key: encodeUtf8("k"), value: encodeUtf8("v"), headers: [], timestampMs: 0 })],
};
const requests: readonly BrokerRequest[] = [
  { kind: "register-client" },
  { kind: "create-topic", topic: "log", partitions: 1, compacted: false },
  { kind: "mint", role: "other" },
  { kind: "remint", role: "other", pair, unsettled: 3n },
  { kind: "commit", role: "other", pair, batches: [batch] },
  { kind: "append", role: "other", pair, sequence: 0, batch },
  { kind: "retire", role: "other", pair, producerId: 7n, batch },
  { kind: "append-unfenced", batch },
  { kind: "delete-records", target: HOME },
  { kind: "open", name: "another", position: 0n, raiseBy: 1n },
  { kind: "forget-roles", count: 1 },
];
const messages: readonly ClientMessage[] = [
  ...requests.map(
    (request, index): ClientMessage => ({
      kind: "request",
      sequence: BigInt(index + 1),
      acked: 0n,
      request: encodeRequest(request),
    }),
  ),
  { kind: "query", id: 1, query: { kind: "describe", role: "role" } },
  { kind: "query", id: 2, query: { kind: "topic", topic: "log" } },
  { kind: "query", id: 3, query: { kind: "fetch", target: LOG, from: 0n, waits: true } },
  { kind: "cancel", id: 3 },
  { kind: "follow", feed: 4, spec: { ...HOME, role: "role" }, from: 0n },
  { kind: "sync", id: 5, feed: 4 },
  { kind: "unfollow", feed: 4 },
];

/** The bytes with some of them changed, cut off, or added. */
const mangled = (bytes: Uint8Array, random: () => number): Uint8Array => {
  const any = (below: number): number => Math.floor(random() * below);
  const copy = Uint8Array.from(bytes);
  for (let change = any(4); change >= 0; change--) copy[any(copy.length)] = any(3) === 0 ? 255 : any(256);
  if (any(4) === 0) return copy.subarray(0, any(copy.length));
  return any(4) === 0 ? Uint8Array.from([...copy, any(256)]) : copy;
};

it(
  "whatever a client says, the owner serves the others on, and its log can be read afterwards",
  async () => {
    const owner = await open();
    const good = EmbeddedTransport.connect({ socketPath: place.socketPath, partitions: 1 });
    closing.push(good);
    const random = randomFrom(1);
    const talks = runs(300);
    for (let talk = 0; talk < talks; talk++) {
      const socket = connect(place.socketPath);
      socket.on("error", () => undefined);
      socket.resume();
      const client = talk.toString(16).padStart(32, "0");
      const greeting = encodeClientMessage({ kind: "hello", version: 2, client, seen: undefined });
      socket.write(frameOf(talk % 10 === 0 ? mangled(greeting, random) : greeting));
      await new Promise<void>((resolve) => {
        socket.once("data", () => resolve());
        socket.once("close", () => resolve());
      });
      for (let count = 0; count < 10; count++) {
        const bytes = encodeClientMessage(messages[Math.floor(random() * messages.length)] as ClientMessage);
        if (socket.writable) socket.write(frameOf(random() < 0.5 ? bytes : mangled(bytes, random)));
      }
      if (talk % 30 === 0) expect(await write(good, `${talk}`)).toBe("committed");
      socket.destroySoon();
      if (!socket.closed) await once(socket, "close");
    }
    expect(await write(good, "after all")).toBe("committed");
    await owner.close();
    await open();
    expect(await write(good, "after the restart")).toBe("committed");
  },
  runs(30_000) + 30_000,
);

it(
  "whatever an owner says, a client only loses its connection, and is served by a better one",
  async () => {
    await open();
    const random = randomFrom(2);
    let bad = true;
    const sockets = new Set<Socket>();
    const proxy = createServer((client) => {
      const owner = connect(place.socketPath);
      const answers = new FrameReader(64 * 1024 * 1024);
      for (const [one, other] of [
        [client, owner],
        [owner, client],
      ] as const) {
        sockets.add(one);
        one.on("error", () => one.destroy());
        one.on("close", () => other.destroy());
      }
      client.pipe(owner);
      owner.on("data", (chunk: Uint8Array) => {
        for (const frame of answers.take(chunk)) {
          client.write(frameOf(bad && random() < 0.3 ? mangled(frame, random) : frame));
        }
      });
    });
    const socketPath = `${place.socketPath}.p`;
    proxy.listen(socketPath);
    await once(proxy, "listening");
    closing.push({
      close: () => {
        proxy.close();
        for (const socket of sockets) socket.destroy();
      },
    });
    const outcomes = new Set<string>();
    for (let life = 0; life < runs(40); life++) {
      const transport = EmbeddedTransport.connect({ socketPath, partitions: 1, requestTimeoutMs: 100 });
      const feed = transport.follow(ROLE, {
        onRecords: () => undefined,
        onUncommitted: () => undefined,
        onReset: () => undefined,
        onMalformed: () => undefined,
        onError: () => undefined,
      });
      const read = async (): Promise<void> => {
        for await (const _ of transport.readTopic(LOG));
      };
      const calls = [write(transport, `${life}`), transport.prepare(), transport.describe(ROLE), feed.sync(), read()];
      for (const { status, ...rest } of await Promise.allSettled(calls)) {
        const { reason } = rest as { readonly reason?: unknown };
        // Nothing but what the contract knows, though what it says may be nonsense.
        if (status === "rejected" && !KrabkaError.is(reason)) throw reason;
        outcomes.add(status);
      }
      await transport.close();
    }
    expect([...outcomes].sort()).toEqual(["fulfilled", "rejected"]);
    bad = false;
    const good = EmbeddedTransport.connect({ socketPath, partitions: 1 });
    closing.push(good);
    expect(await write(good, "good")).toBe("committed");
  },
  runs(30_000) + 30_000,
);
