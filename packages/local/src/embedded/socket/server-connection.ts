import type { Socket } from "node:net";
import type { Clock, Timer } from "@krabka/core";
import { ClientPort } from "../broker/client-port.js";
import type { EmbeddedBroker } from "../broker/embedded-broker.js";
import type { Sighting } from "../broker/openings.js";
import type { Slice } from "../broker/partition-log.js";
import type { BrokerAnswer } from "../broker/request.js";
import { encodeRequest } from "../broker/request-codec.js";
import type { PortListener, QueryResult } from "../link/port.js";
import { FrameReader, frameOf } from "./frames.js";
import {
  type ClientMessage,
  decodeClientMessage,
  encodeServerMessage,
  FRAME_OVERHEAD_BYTES,
  MAX_GREETING_BYTES,
  PROTOCOL_VERSION,
  type ServerMessage,
} from "./messages.js";

export interface ConnectionContext {
  readonly broker: EmbeddedBroker;
  readonly clock: Clock;
  /** How long a reader may take nothing at all before its connection ends. */
  readonly slowReaderMs: number;
  /** Called when the client said who it is: an earlier connection of the same client must end before this one goes on. */
  readonly onIdentified: (client: string, connection: ServerConnection) => void;
  readonly onClosed: (connection: ServerConnection) => void;
}

const GREETING_MS = 5000;
/** What may wait for the socket before feeds are held back. */
const CONGESTED_BYTES = 256 * 1024;
/** Requests of one connection that may wait for the disk; beyond that it is not read from. */
const MAX_IN_FLIGHT = 1000;
/** How long a farewell may take to be read. */
const FAREWELL_MS = 1000;

const CLIENT_ID = /^[0-9a-f]{32}$/;

/** The server's side of one connection. Whatever the other side sends, it can end this connection and nothing else. */
export class ServerConnection implements PortListener {
  readonly #context: ConnectionContext;
  readonly #socket: Socket;
  readonly #frames = new FrameReader(MAX_GREETING_BYTES);
  #port: ClientPort | undefined;
  #state: "greeting" | "open" | "closed" = "greeting";
  #inFlight = 0;
  #timer: Timer;
  #corked = false;
  /** Whether the timer runs for a reader that lags. */
  #isWatching = false;

  constructor(socket: Socket, context: ConnectionContext) {
    this.#socket = socket;
    this.#context = context;
    this.#timer = context.clock.setTimer(GREETING_MS, () => this.end(`no greeting came within ${GREETING_MS} ms`));
    socket.on("data", (chunk: Uint8Array) => this.#receive(chunk));
    socket.on("drain", () => this.#onDrain());
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#close());
  }

  get congested(): boolean {
    return this.#state === "closed" || this.#socket.writableLength >= CONGESTED_BYTES;
  }

  /** Ends the connection and says why, if the other side reads it in time. */
  end(message: string, farewellMs = FAREWELL_MS): void {
    if (this.#state === "closed") return;
    this.#say({ kind: "goodbye", message });
    this.#close();
    this.#socket.end();
    const timer = this.#context.clock.setTimer(farewellMs, () => this.#socket.destroy());
    this.#socket.on("close", () => timer.cancel());
  }

  /** Ends it at once; nothing that was received and not executed yet will be. */
  destroy(): void {
    this.#close();
    this.#socket.destroy();
  }

  onDurable(position: bigint): void {
    this.#say({ kind: "durable", position });
  }

  onAnswer(sequence: bigint, answer: BrokerAnswer): void {
    this.#inFlight -= 1;
    this.#say({ kind: "answer", sequence, answer });
    this.#listenOrNot();
  }

  onResult(id: number, result: QueryResult): void {
    this.#say({ kind: "result", id, result });
  }

  onRecords(feed: number, reset: boolean, slice: Slice): void {
    this.#say({ kind: "records", feed, reset, slice });
  }

  onFeedEnded(feed: number, message: string): void {
    this.#say({ kind: "feed-ended", feed, message });
  }

  onLost(error: Error): void {
    this.end(error.message);
  }

  #receive(chunk: Uint8Array): void {
    try {
      for (const frame of this.#frames.take(chunk)) {
        if (this.#state === "closed") return;
        this.#heed(decodeClientMessage(frame));
      }
      this.#listenOrNot();
    } catch (error) {
      this.end(`The owner does not understand this: ${(error as Error).message}`);
    }
  }

  #heed(message: ClientMessage): void {
    if (message.kind === "hello") {
      if (this.#state !== "greeting" || this.#port !== undefined) throw new Error("a second greeting");
      void this.#greet(message.version, message.client, message.seen);
      return;
    }
    const port = this.#port;
    if (port === undefined || this.#state !== "open") throw new Error("a request before the welcome");
    switch (message.kind) {
      case "request":
        this.#inFlight += 1;
        port.request(message.sequence, message.acked, message.request);
        break;
      case "query":
        port.query(message.id, message.query);
        break;
      case "cancel":
        port.cancel(message.id);
        break;
      case "follow":
        port.follow(message.feed, message.spec, message.from);
        break;
      case "sync":
        port.sync(message.id, message.feed);
        break;
      case "unfollow":
        port.unfollow(message.feed);
        break;
    }
  }

  async #greet(version: number, client: string, seen: Sighting | undefined): Promise<void> {
    const { broker, onIdentified } = this.#context;
    if (version !== PROTOCOL_VERSION) {
      const message = `The owner speaks version ${PROTOCOL_VERSION} of the socket protocol, this client version ${version}: use the same version of @krabka/local in both`;
      return this.#refuse(message);
    }
    if (!CLIENT_ID.test(client)) return this.#refuse("A client's id is 32 hexadecimal digits");
    try {
      broker.requireContinues(seen);
    } catch (error) {
      const { message } = error as Error;
      this.#say({ kind: "other-history", message });
      return this.end(message);
    }
    this.#port = new ClientPort(broker, client, this);
    onIdentified(client, this);
    const isKnown = broker.isKnown(client);
    try {
      await broker.submit(encodeRequest({ kind: "register-client" }), { client, sequence: 0n, acked: 0n });
    } catch (error) {
      return this.end((error as Error).message);
    }
    if (this.#state !== "greeting") return;
    this.#state = "open";
    this.#timer.cancel();
    this.#frames.maxFrameBytes = broker.maxRequestBytes + FRAME_OVERHEAD_BYTES;
    const { sighting, maxRequestBytes } = broker;
    this.#say({ kind: "welcome", isKnown, sighting, maxRequestBytes });
  }

  #refuse(message: string): void {
    this.#say({ kind: "refused", version: PROTOCOL_VERSION, message });
    this.end(message);
  }

  #say(message: ServerMessage): void {
    if (this.#state === "closed" || this.#socket.destroyed) return;
    // Answers to what shared an fsync share a write, too.
    if (!this.#corked) {
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#corked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(frameOf(encodeServerMessage(message)));
    if (this.congested) this.#watchReader();
  }

  /** Takes no more requests while many wait for the disk, or their answers for the client. */
  #listenOrNot(): void {
    const isBusy = this.#inFlight >= MAX_IN_FLIGHT || this.congested;
    if (isBusy) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  #watchReader(): void {
    if (this.#isWatching || this.#state !== "open") return;
    this.#isWatching = true;
    const { clock, slowReaderMs } = this.#context;
    this.#timer = clock.setTimer(slowReaderMs, () => {
      // It is told if it reads on within as long again.
      const message = `This client read nothing for ${slowReaderMs} ms while more was waiting for it`;
      if (this.congested) this.end(message, slowReaderMs);
    });
  }

  #onDrain(): void {
    if (this.#state !== "open") return;
    this.#isWatching = false;
    this.#timer.cancel();
    this.#port?.resume();
    this.#listenOrNot();
  }

  #close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#timer.cancel();
    this.#port?.close();
    this.#context.onClosed(this);
  }
}
