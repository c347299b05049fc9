import { connect, type Socket } from "node:net";
import { KrabkaError } from "@krabka/core";
import type { Sighting } from "../broker/openings.js";
import { otherHistory } from "../link/other-history.js";
import type { BrokerPort, BrokerQuery, Connector, FeedSpec, OpenPort, PortListener } from "../link/port.js";
import { FrameReader, frameOf } from "./frames.js";
import {
  type ClientMessage,
  decodeServerMessage,
  encodeClientMessage,
  FRAME_OVERHEAD_BYTES,
  MAX_GREETING_BYTES,
  PROTOCOL_VERSION,
  type ServerMessage,
} from "./messages.js";

/** Connects to the owner's socket. */
export class SocketConnector implements Connector {
  readonly where: string;
  readonly #socketPath: string;
  readonly #sockets = new Set<Socket>();
  #closed = false;

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
    this.where = `The owner at ${socketPath}`;
  }

  connect(client: string, seen: Sighting | undefined, listener: PortListener): Promise<OpenPort> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw new KrabkaError("CLOSED", "The transport was closed");
      const socket = connect(this.#socketPath);
      this.#sockets.add(socket);
      const connection = new ClientConnection(socket, listener, { resolve, reject });
      socket.on("close", () => this.#sockets.delete(socket));
      connection.say({ kind: "hello", version: PROTOCOL_VERSION, client, seen });
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}

interface Opening {
  readonly resolve: (opened: OpenPort) => void;
  readonly reject: (error: Error) => void;
}

/** The client's side of one connection. */
class ClientConnection implements BrokerPort {
  readonly #socket: Socket;
  readonly #listener: PortListener;
  readonly #frames = new FrameReader(MAX_GREETING_BYTES);
  #opening: Opening | undefined;
  #error: Error | undefined;

  constructor(socket: Socket, listener: PortListener, opening: Opening) {
    this.#socket = socket;
    this.#listener = listener;
    this.#opening = opening;
    socket.on("data", (chunk: Uint8Array) => this.#receive(chunk));
    socket.on("error", (error) => this.#end(error));
    socket.on("end", () => socket.destroy());
    socket.on("close", () => this.#end(this.#error ?? new Error("the owner closed the connection")));
  }

  say(message: ClientMessage): void {
    if (!this.#socket.destroyed) this.#socket.write(frameOf(encodeClientMessage(message)));
  }

  request(sequence: bigint, acked: bigint, request: Uint8Array): void {
    this.say({ kind: "request", sequence, acked, request });
  }

  query(id: number, query: BrokerQuery): void {
    this.say({ kind: "query", id, query });
  }

  cancel(id: number): void {
    this.say({ kind: "cancel", id });
  }

  follow(feed: number, spec: FeedSpec, from: bigint): void {
    this.say({ kind: "follow", feed, spec, from });
  }

  sync(id: number, feed: number): void {
    this.say({ kind: "sync", id, feed });
  }

  unfollow(feed: number): void {
    this.say({ kind: "unfollow", feed });
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Uint8Array): void {
    try {
      for (const frame of this.#frames.take(chunk)) {
        if (this.#error !== undefined) return;
        this.#heed(decodeServerMessage(frame));
      }
    } catch (error) {
      this.#end(new Error(`the owner said something that is not understood: ${(error as Error).message}`));
    }
  }

  #heed(message: ServerMessage): void {
    switch (message.kind) {
      case "welcome": {
        this.#frames.maxFrameBytes = message.maxRequestBytes + FRAME_OVERHEAD_BYTES;
        const opening = this.#opening;
        this.#opening = undefined;
        opening?.resolve({ ...message, port: this });
        break;
      }
      case "refused":
        this.#end(
          message.version === PROTOCOL_VERSION
            ? new Error(message.message)
            : new KrabkaError("UNSUPPORTED", message.message),
        );
        break;
      case "other-history":
        this.#end(otherHistory(message.message));
        break;
      case "durable":
        this.#listener.onDurable(message.position);
        break;
      case "answer":
        this.#listener.onAnswer(message.sequence, message.answer);
        break;
      case "result":
        this.#listener.onResult(message.id, message.result);
        break;
      case "records":
        this.#listener.onRecords(message.feed, message.reset, message.slice);
        break;
      case "feed-ended":
        this.#listener.onFeedEnded(message.feed, message.message);
        break;
      case "goodbye":
        this.#end(new Error(`the owner ended the connection: ${message.message}`));
    }
  }

  #end(error: Error): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#socket.destroy();
    const opening = this.#opening;
    this.#opening = undefined;
    if (opening === undefined) this.#listener.onLost(error);
    else
      opening.reject(KrabkaError.is(error) ? error : new KrabkaError("UNREACHABLE", error.message, { cause: error }));
  }
}
