import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { rewriteAnswer } from "./address-rewrite.js";
import type { Address } from "./ask.js";
import type { Fault, FaultRules, ProxiedRequest } from "./fault-rules.js";
import type { BrokerAddress } from "./metadata.js";
import { FrameSplitter, frame, WireReader } from "./wire.js";

export interface ProxiedConnectionOptions {
  readonly client: Socket;
  readonly broker: BrokerAddress;
  readonly rules: FaultRules;
  /** True while nothing may pass to or from this broker. */
  readonly isDark: () => boolean;
  readonly relocate: (broker: BrokerAddress) => Promise<Address>;
  readonly onEnd: (connection: ProxiedConnection) => void;
}

interface Awaited {
  readonly request: ProxiedRequest;
  readonly fault: Fault | undefined;
}

/**
 * One connection of a client and the one to the broker behind it. Each direction is a queue, so that a request or an
 * answer that waits makes all later ones wait.
 */
export class ProxiedConnection {
  readonly #options: ProxiedConnectionOptions;
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #awaited = new Map<number, Awaited>();
  readonly #closed = new AbortController();
  #requests: Promise<void> = Promise.resolve();
  #answers: Promise<void> = Promise.resolve();
  #queuedRequests = 0;
  #cutOff = false;

  constructor(options: ProxiedConnectionOptions) {
    this.#options = options;
    this.#client = options.client;
    const { host, port } = options.broker;
    this.#upstream = connect({ host, port, noDelay: true });
    this.#client.setNoDelay(true);
    this.#pump(this.#client, (request) => this.#requestArrived(request));
    this.#pump(this.#upstream, (answer) => this.#answerArrived(answer));
    this.#client.once("close", () => this.settle());
    this.#upstream.once("close", () => this.settle());
  }

  /** Ends the client's side now; what is held or delayed still goes to the broker. */
  cut(): void {
    this.#client.destroy();
  }

  /** Ends both sides now. */
  destroy(): void {
    this.#closed.abort();
    this.#client.destroy();
    this.#upstream.destroy();
  }

  /** Passes on the end of one side, unless something still waits or the connection is dark. */
  settle(): void {
    if (this.#client.destroyed && this.#upstream.destroyed) this.#options.onEnd(this);
    else if (this.#options.isDark()) return;
    else if (this.#upstream.destroyed) void this.#answers.then(() => this.#client.destroySoon());
    else if (this.#client.destroyed && this.#queuedRequests === 0 && !this.#awaitsFaulted()) this.#upstream.end();
  }

  #awaitsFaulted(): boolean {
    for (const { fault } of this.#awaited.values()) if (fault !== undefined) return true;
    return false;
  }

  #pump(socket: Socket, take: (content: Buffer) => void): void {
    const splitter = new FrameSplitter();
    socket.unref();
    // "close" follows every error, and says all that matters here.
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const content of splitter.push(chunk)) if (!this.#options.isDark()) take(content);
      } catch (error) {
        this.#fail(error);
      }
    });
  }

  #requestArrived(content: Buffer): void {
    const { correlationId, request } = parseRequest(content, this.#options.broker.id);
    const fault = this.#options.rules.arrived(request);
    this.#queuedRequests += 1;
    this.#requests = this.#requests
      .then(() => this.#forward(content, correlationId, { request, fault }))
      .catch((error: unknown) => this.#fail(error))
      .then(() => {
        this.#queuedRequests -= 1;
        if (this.#client.destroyed) this.settle();
      });
  }

  async #forward(content: Buffer, correlationId: number, awaited: Awaited): Promise<void> {
    const { request, fault } = awaited;
    if (this.#cutOff) return;
    if (fault !== undefined) {
      const { action } = fault;
      if (action === "cut-before") {
        this.#cutOff = true;
        fault.struck();
        return this.cut();
      }
      if (typeof action === "object") {
        if ("answer" in action) {
          fault.struck();
          return this.#answer(Buffer.concat([content.subarray(4, 8), action.answer(request)]));
        }
        if ("hold" in action) {
          fault.struck();
          await fault.released;
        }
        if ("delayRequestMs" in action) {
          fault.struck();
          await sleep(action.delayRequestMs, undefined, { signal: this.#closed.signal });
        }
      }
    }
    this.#awaited.set(correlationId, awaited);
    this.#upstream.write(frame(content));
  }

  #answerArrived(content: Buffer): void {
    const correlationId = content.readInt32BE();
    const awaited = this.#awaited.get(correlationId);
    if (awaited === undefined) throw new Error(`broker answered request ${correlationId}, which was not sent`);
    this.#awaited.delete(correlationId);
    awaited.fault?.answered(content.subarray(4));
    this.#answers = this.#answers
      .then(() => this.#return(content, awaited))
      .catch((error: unknown) => this.#fail(error))
      .then(() => {
        if (this.#client.destroyed) this.settle();
      });
  }

  async #return(content: Buffer, { request, fault }: Awaited): Promise<void> {
    const action = fault?.action;
    if (fault !== undefined && action === "drop-answer") return fault.struck();
    if (fault !== undefined && action === "cut-after") {
      fault.struck();
      return this.cut();
    }
    if (fault !== undefined && typeof action === "object" && "delayAnswerMs" in action) {
      fault.struck();
      await sleep(action.delayAnswerMs, undefined, { signal: this.#closed.signal });
    }
    this.#answer(await rewriteAnswer(request, content, this.#options.relocate));
  }

  #answer(content: Buffer): void {
    if (this.#client.writable) this.#client.write(frame(content));
  }

  #fail(error: unknown): void {
    if (!this.#closed.signal.aborted) process.emitWarning(`fault proxy: connection given up: ${String(error)}`);
    this.destroy();
  }
}

function parseRequest(content: Buffer, brokerId: number): { correlationId: number; request: ProxiedRequest } {
  const reader = new WireReader(content);
  const apiKey = reader.int16();
  const apiVersion = reader.int16();
  const correlationId = reader.int32();
  reader.string(); // client id, never compact
  return { correlationId, request: { apiKey, apiVersion, brokerId, body: content.subarray(reader.position) } };
}
