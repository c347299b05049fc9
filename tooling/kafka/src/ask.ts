import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { FrameSplitter, frame, WireReader, WireWriter } from "./wire.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface WireRequest {
  readonly apiKey: number;
  readonly version: number;
  /** Whether this version has tagged fields (KIP-482). */
  readonly flexible?: boolean;
  readonly body: Buffer;
}

/**
 * One request over a connection of its own.
 *
 * @returns the answer from behind its header on
 * @throws what the connection failed with, or the reason of `signal`
 */
export async function ask(address: Address, request: WireRequest, signal: AbortSignal): Promise<WireReader> {
  const { apiKey, version, flexible = false, body } = request;
  const socket = connect({ ...address, signal });
  try {
    await once(socket, "connect", { signal });
    const header = new WireWriter().int16(apiKey).int16(version).int32(1).string("krabka-tooling");
    if (flexible) header.varint(0);
    socket.write(frame(header.raw(body).bytes()));
    const reader = new WireReader(await nextFrame(socket));
    reader.int32(); // correlation id
    if (flexible) reader.taggedFields();
    return reader;
  } finally {
    socket.destroy();
  }
}

async function nextFrame(socket: Socket): Promise<Buffer> {
  const splitter = new FrameSplitter();
  for await (const chunk of socket) {
    const [answer] = splitter.push(chunk as Buffer);
    if (answer !== undefined) return answer;
  }
  throw new Error("the broker closed the connection instead of answering");
}
