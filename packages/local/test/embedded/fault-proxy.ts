import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { WireFault } from "@krabka/testing/conformance";
import { decodeRequest } from "../../src/embedded/broker/request-codec.js";
import { FrameReader, frameOf } from "../../src/embedded/socket/frames.js";
import { decodeClientMessage, decodeServerMessage } from "../../src/embedded/socket/messages.js";

interface Fault {
  readonly fault: WireFault;
  readonly onHit: () => void;
  /** Lets the held frame go, once it is held. */
  released: boolean;
  forward: (() => void) | undefined;
}

/** The requests that stand for Kafka's: a commit is one request here, so each step of a transaction is it. */
const REQUESTS: { readonly [A in WireFault["api"]]: readonly string[] } = {
  InitProducerId: ["mint", "remint"],
  AddPartitionsToTxn: ["commit"],
  Produce: ["commit", "append"],
  EndTxn: ["commit"],
};

const MANY_BYTES = 64 * 1024 * 1024;

/** Stands between clients and the owner's socket, understands both, and loses answers or holds requests when told. */
export class FaultProxy {
  readonly #ownerPath: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #owners = new Set<Socket>();
  #faults: Fault[] = [];

  private constructor(ownerPath: string) {
    this.#ownerPath = ownerPath;
    this.#server = createServer((client) => this.#join(client));
  }

  static async listen(path: string, ownerPath: string): Promise<FaultProxy> {
    const proxy = new FaultProxy(ownerPath);
    proxy.#server.listen(path);
    await once(proxy.#server, "listening");
    return proxy;
  }

  inject(fault: WireFault): { readonly hit: Promise<void>; release(): Promise<void> } {
    let onHit: () => void = () => undefined;
    const hit = new Promise<void>((resolve) => {
      onHit = resolve;
    });
    const entry: Fault = { fault, onHit, released: false, forward: undefined };
    this.#faults.push(entry);
    return {
      hit,
      release: async () => {
        entry.released = true;
        entry.forward?.();
      },
    };
  }

  /** Takes nothing from the owner any more on the connections that are open now, until the returned function is called. */
  stall(): () => void {
    const stalled = [...this.#owners];
    for (const owner of stalled) owner.pause();
    return () => {
      for (const owner of stalled) owner.resume();
    };
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  close(): void {
    this.#server.close();
    this.cut();
  }

  #take(kind: string): Fault | undefined {
    const index = this.#faults.findIndex(({ fault }) => REQUESTS[fault.api].includes(kind));
    return index < 0 ? undefined : this.#faults.splice(index, 1)[0];
  }

  #join(client: Socket): void {
    const owner = connect(this.#ownerPath);
    this.#owners.add(owner);
    owner.on("close", () => this.#owners.delete(owner));
    const lost = new Map<bigint, Fault>();
    const [requests, answers] = [new FrameReader(MANY_BYTES), new FrameReader(MANY_BYTES)];
    for (const [one, other] of [
      [client, owner],
      [owner, client],
    ] as const) {
      this.#sockets.add(one);
      one.on("error", () => one.destroy());
      one.on("close", () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
    client.on("data", (chunk: Uint8Array) => {
      for (const frame of requests.take(chunk)) {
        const message = decodeClientMessage(frame);
        const fault = message.kind === "request" ? this.#take(decodeRequest(message.request).kind) : undefined;
        const forward = (): void => void owner.write(frameOf(frame));
        if (fault?.fault.effect === "hold-request") {
          fault.forward = forward;
          fault.onHit();
          if (fault.released) forward();
          continue;
        }
        if (fault !== undefined && message.kind === "request") lost.set(message.sequence, fault);
        forward();
      }
    });
    owner.on("data", (chunk: Uint8Array) => {
      for (const frame of answers.take(chunk)) {
        const message = decodeServerMessage(frame);
        const fault = message.kind === "answer" ? lost.get(message.sequence) : undefined;
        if (fault !== undefined) {
          client.destroy();
          fault.onHit();
          return;
        }
        client.write(frameOf(frame));
      }
    });
  }
}
