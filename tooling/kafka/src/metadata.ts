import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { FrameSplitter, frame, WireReader, WireWriter } from "./wire.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface BrokerAddress extends Address {
  readonly id: number;
}

const METADATA = 3;
/** Spoken by every broker since Kafka 1.0, and still by Kafka 4 (KIP-896). */
const VERSION = 5;

/**
 * Asks one broker which brokers it knows.
 *
 * @throws what the connection failed with, or the reason of `signal`
 */
export async function fetchBrokers(address: Address, signal: AbortSignal): Promise<BrokerAddress[]> {
  const socket = connect({ ...address, signal });
  try {
    await once(socket, "connect", { signal });
    const request = new WireWriter().int16(METADATA).int16(VERSION).int32(1).string("krabka-tooling");
    // No topic, and none to be created.
    socket.write(frame(request.int32(0).int8(0).bytes()));
    return readBrokers(await nextFrame(socket));
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

function readBrokers(answer: Buffer): BrokerAddress[] {
  const reader = new WireReader(answer);
  reader.int32(); // correlation id
  reader.int32(); // throttle time
  return Array.from({ length: reader.arrayLength() }, () => {
    const broker = { id: reader.int32(), host: reader.string() ?? "", port: reader.int32() };
    reader.string(); // rack
    return broker;
  });
}
