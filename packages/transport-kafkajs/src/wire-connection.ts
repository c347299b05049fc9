import type { Api } from "./wire/api.js";
import type { ByteReader } from "./wire/byte-reader.js";
import type { BrokerAddress } from "./wire/cluster-requests.js";

/**
 * Connections of one broker, by use. A broker serves one request at a time per connection, so a long poll never stands in
 * front of a write: `write` for mints, writes and short questions, `poll` for long polls, `replay` for catching up.
 */
export type Lane = "write" | "poll" | "replay";

/** No answer came. `sent` tells whether the request may have reached the broker. */
export class UnansweredError extends Error {
  override readonly name = "UnansweredError";
  readonly sent: boolean;

  constructor(message: string, sent: boolean, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.sent = sent;
  }
}

export interface WireRequest {
  readonly api: Api;
  /** Encodes at the last moment; what it throws ends the request before it was sent. */
  readonly encode: () => Uint8Array;
  /** After it the connection is given up, so that it blocks nobody else, and the request counts as unanswered. */
  readonly timeoutMs: number;
}

/**
 * The narrow seam between the client library and everything else here: requests as bytes to a broker.
 *
 * @throws {UnansweredError}
 * @throws {KrabkaError} `UNAUTHORIZED` (credentials), `UNSUPPORTED` (the broker lacks a request), `CLOSED`
 */
export interface Wire {
  /** Sends to one broker, on one of its connections, in the order of the calls. */
  request(nodeId: number, lane: Lane, request: WireRequest): Promise<ByteReader>;
  /** Sends to any broker that can be reached: known ones first, then those of the configuration. */
  requestAny(request: WireRequest): Promise<ByteReader>;
  /** Tells where brokers live now; a connection to an address that changed is given up. */
  learn(brokers: readonly BrokerAddress[]): void;
  /** The brokers that were tried last, each with what went wrong there, for messages. */
  readonly tried: readonly string[];
  close(): Promise<void>;
}
