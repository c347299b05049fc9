import { ByteReader, ByteWriter } from "../../state/binary.js";
import type { Sighting } from "../broker/openings.js";
import type { Slice } from "../broker/partition-log.js";
import type { BrokerAnswer } from "../broker/request.js";
import { putAnswer, putPair, putTarget, takeAnswer, takePair, takeTarget } from "../broker/request-codec.js";
import type { BrokerQuery, FeedSpec, QueryResult } from "../link/port.js";

/** Raised with every change of what is said on the socket. Both sides must speak the same one. */
export const PROTOCOL_VERSION = 2;
const MAGIC = "krabka embedded";
/** Bound of a frame before the other side is known. */
export const MAX_GREETING_BYTES = 4096;
/** What a frame may take beyond the largest request. */
export const FRAME_OVERHEAD_BYTES = 1024 * 1024;

export type ClientMessage =
  | {
      readonly kind: "hello";
      readonly version: number;
      readonly client: string;
      /** What it saw over earlier connections. */
      readonly seen: Sighting | undefined;
    }
  | { readonly kind: "request"; readonly sequence: bigint; readonly acked: bigint; readonly request: Uint8Array }
  | { readonly kind: "query"; readonly id: number; readonly query: BrokerQuery }
  | { readonly kind: "cancel"; readonly id: number }
  | { readonly kind: "follow"; readonly feed: number; readonly spec: FeedSpec; readonly from: bigint }
  | { readonly kind: "sync"; readonly id: number; readonly feed: number }
  | { readonly kind: "unfollow"; readonly feed: number };

export type ServerMessage =
  | {
      readonly kind: "welcome";
      readonly isKnown: boolean;
      readonly sighting: Sighting;
      readonly maxRequestBytes: number;
    }
  /** Instead of a welcome: this is not the log that the client knows. */
  | { readonly kind: "other-history"; readonly message: string }
  /** What follows rests on the records before this position. */
  | { readonly kind: "durable"; readonly position: bigint }
  /** Instead of a welcome. The form of this one and of the start of hello never changes. */
  | { readonly kind: "refused"; readonly version: number; readonly message: string }
  | { readonly kind: "answer"; readonly sequence: bigint; readonly answer: BrokerAnswer }
  | { readonly kind: "result"; readonly id: number; readonly result: QueryResult }
  | { readonly kind: "records"; readonly feed: number; readonly reset: boolean; readonly slice: Slice }
  | { readonly kind: "feed-ended"; readonly feed: number; readonly message: string }
  /** Why the connection ends; nothing follows. */
  | { readonly kind: "goodbye"; readonly message: string };

const CLIENT_KINDS = [
  "hello",
  "request",
  "query",
  "cancel",
  "follow",
  "sync",
  "unfollow",
] as const satisfies readonly ClientMessage["kind"][];

const SERVER_KINDS = [
  "refused",
  "welcome",
  "answer",
  "result",
  "records",
  "feed-ended",
  "goodbye",
  "other-history",
  "durable",
] as const satisfies readonly ServerMessage["kind"][];

const QUERY_KINDS = ["describe", "topic", "fetch"] as const satisfies readonly BrokerQuery["kind"][];
const RESULT_KINDS = [
  "pair",
  "topic",
  "slice",
  "gap",
  "end",
  "unknown-topic",
] as const satisfies readonly QueryResult["kind"][];

const kindOf = <K>(kinds: readonly K[], reader: ByteReader): K => {
  const index = reader.uint8();
  const kind = kinds[index];
  if (kind === undefined) throw new Error(`a message of unknown kind ${index}`);
  return kind;
};

export function encodeClientMessage(message: ClientMessage): Uint8Array {
  const writer = new ByteWriter().uint8(CLIENT_KINDS.indexOf(message.kind));
  switch (message.kind) {
    case "hello":
      return writer
        .string(MAGIC)
        .uint32(message.version)
        .string(message.client)
        .optional(message.seen, putSighting)
        .finish();
    case "request":
      return writer.int64(message.sequence).int64(message.acked).bytes(message.request).finish();
    case "query":
      putQuery(writer.uint32(message.id), message.query);
      return writer.finish();
    case "cancel":
      return writer.uint32(message.id).finish();
    case "follow":
      return putTarget(writer.uint32(message.feed), message.spec)
        .string(message.spec.role)
        .int64(message.from)
        .finish();
    case "sync":
      return writer.uint32(message.id).uint32(message.feed).finish();
    case "unfollow":
      return writer.uint32(message.feed).finish();
  }
}

/** @throws {Error} for bytes that are no message */
export function decodeClientMessage(bytes: Uint8Array): ClientMessage {
  const reader = new ByteReader(bytes);
  const message = takeClientMessage(kindOf(CLIENT_KINDS, reader), reader);
  // Another version may say more behind its version.
  if (message.kind !== "hello" || message.version === PROTOCOL_VERSION) reader.end();
  return message;
}

const takeClientMessage = (kind: ClientMessage["kind"], reader: ByteReader): ClientMessage => {
  switch (kind) {
    case "hello": {
      if (reader.string() !== MAGIC) throw new Error("a greeting of something else than Krabka");
      const version = reader.uint32();
      if (version !== PROTOCOL_VERSION) return { kind, version, client: "", seen: undefined };
      return { kind, version, client: reader.string(), seen: reader.optional(takeSighting) };
    }
    case "request":
      return { kind, sequence: reader.int64(), acked: reader.int64(), request: reader.bytes() };
    case "query":
      return { kind, id: reader.uint32(), query: takeQuery(reader) };
    case "cancel":
      return { kind, id: reader.uint32() };
    case "follow":
      return {
        kind,
        feed: reader.uint32(),
        spec: { ...takeTarget(reader), role: reader.string() },
        from: reader.int64(),
      };
    case "sync":
      return { kind, id: reader.uint32(), feed: reader.uint32() };
    case "unfollow":
      return { kind, feed: reader.uint32() };
  }
};

export function encodeServerMessage(message: ServerMessage): Uint8Array {
  const writer = new ByteWriter().uint8(SERVER_KINDS.indexOf(message.kind));
  switch (message.kind) {
    case "welcome":
      putSighting(writer.uint8(message.isKnown ? 1 : 0), message.sighting);
      writer.uint32(message.maxRequestBytes);
      break;
    case "refused":
      writer.uint32(message.version).string(message.message);
      break;
    case "answer":
      putAnswer(writer.int64(message.sequence), message.answer);
      break;
    case "result":
      putResult(writer.uint32(message.id), message.result);
      break;
    case "records":
      putSlice(writer.uint32(message.feed).uint8(message.reset ? 1 : 0), message.slice);
      break;
    case "feed-ended":
      writer.uint32(message.feed).string(message.message);
      break;
    case "goodbye":
    case "other-history":
      writer.string(message.message);
      break;
    case "durable":
      writer.int64(message.position);
      break;
  }
  return writer.finish();
}

/** @throws {Error} for bytes that are no message */
export function decodeServerMessage(bytes: Uint8Array): ServerMessage {
  const reader = new ByteReader(bytes);
  const kind = kindOf(SERVER_KINDS, reader);
  switch (kind) {
    case "welcome":
      return {
        kind,
        isKnown: reader.uint8() === 1,
        sighting: takeSighting(reader),
        maxRequestBytes: reader.uint32(),
      };
    case "refused":
      return { kind, version: reader.uint32(), message: reader.string() };
    case "answer":
      return { kind, sequence: reader.int64(), answer: takeAnswer(reader) };
    case "result":
      return { kind, id: reader.uint32(), result: takeResult(reader) };
    case "records":
      return { kind, feed: reader.uint32(), reset: reader.uint8() === 1, slice: takeSlice(reader) };
    case "feed-ended":
      return { kind, feed: reader.uint32(), message: reader.string() };
    case "goodbye":
    case "other-history":
      return { kind, message: reader.string() };
    case "durable":
      return { kind, position: reader.int64() };
  }
}

const putSighting = (writer: ByteWriter, { opening, position }: Sighting): void => {
  writer.string(opening).int64(position);
};

const takeSighting = (reader: ByteReader): Sighting => ({ opening: reader.string(), position: reader.int64() });

/** Offsets are not negative, so the two words have numbers of their own. */
const EARLIEST = -1n;
const LATEST = -2n;

const putQuery = (writer: ByteWriter, query: BrokerQuery): void => {
  writer.uint8(QUERY_KINDS.indexOf(query.kind));
  if (query.kind === "describe") writer.string(query.role);
  else if (query.kind === "topic") writer.string(query.topic);
  else {
    const from = query.from === "earliest" ? EARLIEST : query.from === "latest" ? LATEST : query.from;
    putTarget(writer, query.target)
      .int64(from)
      .uint8(query.waits ? 1 : 0);
  }
};

const takeQuery = (reader: ByteReader): BrokerQuery => {
  const kind = kindOf(QUERY_KINDS, reader);
  if (kind === "describe") return { kind, role: reader.string() };
  if (kind === "topic") return { kind, topic: reader.string() };
  const target = takeTarget(reader);
  const from = reader.int64();
  const word = from === EARLIEST ? "earliest" : from === LATEST ? "latest" : from;
  return { kind, target, from: word, waits: reader.uint8() === 1 };
};

const putResult = (writer: ByteWriter, result: QueryResult): void => {
  writer.uint8(RESULT_KINDS.indexOf(result.kind));
  switch (result.kind) {
    case "pair":
      writer.optional(result.pair, (to, pair) => void putPair(to, pair));
      break;
    case "topic":
      writer.uint32(result.partitions);
      break;
    case "slice":
      putSlice(writer, result.slice);
      writer.int64(result.end);
      break;
    case "gap":
      writer.int64(result.start).int64(result.end);
      break;
    case "end":
      writer.int64(result.end);
      break;
    case "unknown-topic":
      writer.string(result.message);
      break;
  }
};

const takeResult = (reader: ByteReader): QueryResult => {
  const kind = kindOf(RESULT_KINDS, reader);
  switch (kind) {
    case "pair":
      return { kind, pair: reader.optional(takePair) };
    case "topic":
      return { kind, partitions: reader.uint32() };
    case "slice":
      return { kind, slice: takeSlice(reader), end: reader.int64() };
    case "gap":
      return { kind, start: reader.int64(), end: reader.int64() };
    case "end":
      return { kind, end: reader.int64() };
    case "unknown-topic":
      return { kind, message: reader.string() };
  }
};

const putSlice = (writer: ByteWriter, { records, next }: Slice): void => {
  writer.int64(next);
  writer.list(records, (to, { offset, atMs, bytes }) => to.int64(offset).int64(BigInt(atMs)).bytes(bytes));
};

const takeSlice = (reader: ByteReader): Slice => {
  const next = reader.int64();
  const records = reader.list((from) => ({ offset: from.int64(), atMs: Number(from.int64()), bytes: from.bytes() }));
  return { next, records };
};
