import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type RunningFaultProxy, startFaultProxy } from "../src/fault-proxy.js";
import { FrameSplitter, frame, WireWriter } from "../src/wire.js";

const METADATA = 3;
const END_TXN = 26;
const HEARTBEAT = 12;

/** A broker that knows itself, answers everything else with an empty answer, and keeps the correlation ids it saw. */
class EchoBroker {
  readonly seen: number[] = [];
  readonly connections = new Set<Socket>();
  readonly server: Server;

  constructor() {
    this.server = createServer((socket) => {
      const splitter = new FrameSplitter();
      this.connections.add(socket);
      socket.on("close", () => this.connections.delete(socket));
      socket.on("error", () => {});
      socket.on("data", (chunk) => {
        for (const request of splitter.push(chunk)) socket.write(frame(this.#answer(request)));
      });
    }).listen(0, "127.0.0.1");
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  #answer(request: Buffer): Buffer {
    const correlationId = request.readInt32BE(4);
    const answer = new WireWriter().int32(correlationId);
    if (request.readInt16BE() !== METADATA) {
      this.seen.push(correlationId);
      return answer.bytes();
    }
    return answer.int32(0).int32(1).int32(1).string("127.0.0.1").int32(this.port).string(null).bytes();
  }
}

/** One connection of a client, which reads answers in the order in which they come. */
class Client {
  readonly socket: Socket;
  readonly answers: number[] = [];
  readonly #splitter = new FrameSplitter();

  constructor(proxy: RunningFaultProxy) {
    this.socket = connect(Number(proxy.bootstrap.split(":")[1]), "127.0.0.1");
    this.socket.on("error", () => {});
    this.socket.on("data", (chunk) => {
      for (const answer of this.#splitter.push(chunk)) this.answers.push(answer.readInt32BE());
    });
  }

  send(apiKey: number, correlationId: number): void {
    this.socket.write(frame(new WireWriter().int16(apiKey).int16(1).int32(correlationId).string("client").bytes()));
  }

  async answered(count: number): Promise<number[]> {
    while (this.answers.length < count) await once(this.socket, "data");
    return this.answers;
  }
}

let broker: EchoBroker;
let proxy: RunningFaultProxy;

beforeEach(async () => {
  broker = new EchoBroker();
  await once(broker.server, "listening");
  proxy = await startFaultProxy({ bootstrap: `127.0.0.1:${broker.port}` });
});

afterEach(async () => {
  await proxy.close();
  broker.server.close();
});

test("a delayed request is not overtaken by later ones of its connection", async () => {
  proxy.inject({ apiKey: END_TXN, action: { delayRequestMs: 30 } });
  const client = new Client(proxy);
  client.send(END_TXN, 1);
  client.send(HEARTBEAT, 2);
  expect(await client.answered(2)).toEqual([1, 2]);
  expect(broker.seen).toEqual([1, 2]);
});

test("a delayed answer is not overtaken by later ones of its connection", async () => {
  proxy.inject({ apiKey: END_TXN, action: { delayAnswerMs: 30 } });
  const client = new Client(proxy);
  client.send(END_TXN, 1);
  client.send(HEARTBEAT, 2);
  expect(await client.answered(2)).toEqual([1, 2]);
});

test("a held request lets other connections pass and reaches the broker after its client has gone", async () => {
  const held = proxy.inject({ apiKey: END_TXN, action: { hold: true } });
  const first = new Client(proxy);
  first.send(END_TXN, 1);
  await held.hit;
  first.socket.destroy();
  const second = new Client(proxy);
  second.send(END_TXN, 2);
  expect(await second.answered(1)).toEqual([2]);
  expect(broker.seen).toEqual([2]);
  held.release();
  expect(await held.brokerAnswer).toEqual(Buffer.alloc(0));
  expect(broker.seen).toEqual([2, 1]);
});

test("a held request survives that all connections are cut", async () => {
  const held = proxy.inject({ apiKey: END_TXN, action: { hold: true } });
  const client = new Client(proxy);
  client.send(END_TXN, 1);
  await held.hit;
  proxy.cut();
  await once(client.socket, "close");
  held.release();
  await held.brokerAnswer;
  expect(broker.seen).toEqual([1]);
});

test("nothing that follows on a connection cut before a request reaches the broker", async () => {
  const cut = proxy.inject({ apiKey: END_TXN, action: "cut-before" });
  const client = new Client(proxy);
  client.send(HEARTBEAT, 1);
  client.send(END_TXN, 2);
  client.send(HEARTBEAT, 3);
  await once(client.socket, "close");
  expect(cut.hits).toBe(1);
  const other = new Client(proxy);
  other.send(HEARTBEAT, 4);
  await other.answered(1);
  expect(broker.seen).toEqual([1, 4]);
});

test("a dropped answer leaves the connection as it was for the next", async () => {
  const dropped = proxy.inject({ apiKey: END_TXN, action: "drop-answer" });
  const client = new Client(proxy);
  client.send(END_TXN, 1);
  client.send(END_TXN, 2);
  expect(await client.answered(1)).toEqual([2]);
  expect(broker.seen).toEqual([1, 2]);
  expect(dropped.hits).toBe(1);
});

test("a rule that does not claim a request leaves it to the next rule", async () => {
  const never = proxy.inject({ apiKey: END_TXN, when: () => false, action: "drop-answer" });
  const answered = proxy.inject({ apiKey: END_TXN, action: { answer: () => Buffer.from([1]) } });
  const client = new Client(proxy);
  client.send(END_TXN, 1);
  expect(await client.answered(1)).toEqual([1]);
  expect(broker.seen).toEqual([]);
  expect([never.hits, answered.hits]).toEqual([0, 1]);
});

test("in the dark, neither side learns of the other's end until the light is back", async () => {
  const client = new Client(proxy);
  client.send(HEARTBEAT, 1);
  await client.answered(1);
  const [brokerSide] = [...broker.connections].slice(-1);
  if (brokerSide === undefined) throw new Error("no connection");
  proxy.blackhole(true, 1);
  client.send(HEARTBEAT, 2);
  brokerSide.destroy();
  // A whole round trip over another proxy, so that what the first would have passed on has arrived.
  const lit = await startFaultProxy({ bootstrap: `127.0.0.1:${broker.port}` });
  const other = new Client(lit);
  other.send(HEARTBEAT, 3);
  await other.answered(1);
  await lit.close();
  expect(client.socket.destroyed).toBe(false);
  expect(broker.seen).toEqual([1, 3]);
  const closed = once(client.socket, "close");
  proxy.blackhole(false, 1);
  await closed;
});

test("reset lets go what is held and forgets the rules", async () => {
  const held = proxy.inject({ apiKey: END_TXN, times: 5, action: { hold: true } });
  const client = new Client(proxy);
  client.send(END_TXN, 1);
  await held.hit;
  proxy.reset();
  client.send(END_TXN, 2);
  expect(await client.answered(2)).toEqual([1, 2]);
  expect(held.hits).toBe(1);
  expect(proxy.requests(END_TXN)).toBe(2);
});

test("a cluster where nobody answers is reported with its address", async () => {
  await expect(startFaultProxy({ bootstrap: "127.0.0.1:1" })).rejects.toThrow("no broker answers at 127.0.0.1:1");
  await expect(startFaultProxy({ bootstrap: "nowhere" })).rejects.toThrow('"nowhere" is not an address');
});
