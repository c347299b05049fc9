import type { ProducerPair, TopicPartition } from "@krabka/core";
import { ByteReader, ByteWriter } from "../../state/binary.js";
import type { BrokerAnswer, BrokerRequest, Command, Origin, RecordBatch, Refusal, Written } from "./request.js";

const FORMAT_VERSION = 1;

const REQUESTS = [
  "register-client",
  "create-topic",
  "mint",
  "remint",
  "commit",
  "append",
  "retire",
  "append-unfenced",
  "delete-records",
  "open",
  "forget-roles",
] as const satisfies readonly BrokerRequest["kind"][];

const REFUSALS = [
  "fenced",
  "unknown-topic",
  "topic-differs",
  "invalid",
  "unknown-client",
  "outdated",
] as const satisfies readonly Refusal[];

const ANSWERS = ["done", "minted", "written", "refused"] as const satisfies readonly BrokerAnswer["status"][];

const oneOf = <T>(names: readonly T[], index: number, what: string): T => {
  const name = names[index];
  if (name === undefined) throw new Error(`there is no ${what} of number ${index}`);
  return name;
};

export const putPair = (writer: ByteWriter, { producerId, epoch }: ProducerPair): ByteWriter =>
  writer.int64(producerId).uint32(epoch);

export const takePair = (reader: ByteReader): ProducerPair => ({ producerId: reader.int64(), epoch: reader.uint32() });

export const putTarget = (writer: ByteWriter, { topic, partition }: TopicPartition): ByteWriter =>
  writer.string(topic).uint32(partition);

export const takeTarget = (reader: ByteReader): TopicPartition => ({
  topic: reader.string(),
  partition: reader.uint32(),
});

const putBatch = (writer: ByteWriter, batch: RecordBatch): void => {
  putTarget(writer, batch).list(batch.records, (to, record) => to.bytes(record));
};

const takeBatch = (reader: ByteReader): RecordBatch => ({
  ...takeTarget(reader),
  records: reader.list((from) => from.bytes()),
});

export function encodeRequest(request: BrokerRequest): Uint8Array {
  const writer = new ByteWriter().uint8(REQUESTS.indexOf(request.kind));
  switch (request.kind) {
    case "register-client":
      break;
    case "create-topic":
      writer
        .string(request.topic)
        .uint32(request.partitions)
        .uint8(request.compacted ? 1 : 0);
      break;
    case "mint":
      writer.string(request.role);
      break;
    case "remint":
      putPair(writer.string(request.role), request.pair).optional(request.unsettled, (to, id) => to.int64(id));
      break;
    case "commit":
      putPair(writer.string(request.role), request.pair).list(request.batches, putBatch);
      break;
    case "append":
      putBatch(putPair(writer.string(request.role), request.pair).uint32(request.sequence), request.batch);
      break;
    case "retire":
      putBatch(putPair(writer.string(request.role), request.pair).int64(request.producerId), request.batch);
      break;
    case "append-unfenced":
      putBatch(writer, request.batch);
      break;
    case "delete-records":
      putTarget(writer, request.target);
      break;
    case "open":
      writer.string(request.name).int64(request.position).int64(request.raiseBy);
      break;
    case "forget-roles":
      writer.uint32(request.count);
      break;
  }
  return writer.finish();
}

/** @throws {Error} for bytes that are no request */
export function decodeRequest(bytes: Uint8Array): BrokerRequest {
  const reader = new ByteReader(bytes);
  const request = takeRequest(oneOf(REQUESTS, reader.uint8(), "request"), reader);
  reader.end();
  return request;
}

const takeRequest = (kind: BrokerRequest["kind"], reader: ByteReader): BrokerRequest => {
  switch (kind) {
    case "register-client":
      return { kind };
    case "create-topic":
      return { kind, topic: reader.string(), partitions: reader.uint32(), compacted: reader.uint8() === 1 };
    case "mint":
      return { kind, role: reader.string() };
    case "remint":
      return {
        kind,
        role: reader.string(),
        pair: takePair(reader),
        unsettled: reader.optional((from) => from.int64()),
      };
    case "commit":
      return { kind, role: reader.string(), pair: takePair(reader), batches: reader.list(takeBatch) };
    case "append":
      return {
        kind,
        role: reader.string(),
        pair: takePair(reader),
        sequence: reader.uint32(),
        batch: takeBatch(reader),
      };
    case "retire":
      return {
        kind,
        role: reader.string(),
        pair: takePair(reader),
        producerId: reader.int64(),
        batch: takeBatch(reader),
      };
    case "append-unfenced":
      return { kind, batch: takeBatch(reader) };
    case "delete-records":
      return { kind, target: takeTarget(reader) };
    case "open":
      return { kind, name: reader.string(), position: reader.int64(), raiseBy: reader.int64() };
    case "forget-roles":
      return { kind, count: reader.uint32() };
  }
};

const putWritten = (writer: ByteWriter, { atMs, bases }: Written): void => {
  writer.int64(BigInt(atMs)).list(bases, (to, base) => to.int64(base));
};

const takeWritten = (reader: ByteReader): Written => ({
  status: "written",
  atMs: Number(reader.int64()),
  bases: reader.list((from) => from.int64()),
});

export function putAnswer(writer: ByteWriter, answer: BrokerAnswer): ByteWriter {
  writer.uint8(ANSWERS.indexOf(answer.status));
  if (answer.status === "minted") putPair(writer, answer.pair).optional(answer.settled ?? undefined, putWritten);
  if (answer.status === "written") putWritten(writer, answer);
  if (answer.status === "refused") writer.uint8(REFUSALS.indexOf(answer.reason)).string(answer.message);
  return writer;
}

export function takeAnswer(reader: ByteReader): BrokerAnswer {
  const status = oneOf(ANSWERS, reader.uint8(), "answer");
  switch (status) {
    case "done":
      return { status };
    case "minted":
      return { status, pair: takePair(reader), settled: reader.optional(takeWritten) ?? null };
    case "written":
      return takeWritten(reader);
    case "refused":
      return { status, reason: oneOf(REFUSALS, reader.uint8(), "refusal"), message: reader.string() };
  }
}

/** A command around a request that is encoded already, since that is how it arrives. */
export function encodeCommand(atMs: number, origin: Origin | undefined, request: Uint8Array): Uint8Array {
  return new ByteWriter()
    .uint8(FORMAT_VERSION)
    .int64(BigInt(atMs))
    .optional(origin, (to, { client, sequence, acked }) => to.string(client).int64(sequence).int64(acked))
    .bytes(request)
    .finish();
}

/** @throws {Error} for bytes that are no command */
export function decodeCommand(bytes: Uint8Array): Command {
  const reader = new ByteReader(bytes);
  const version = reader.uint8();
  if (version !== FORMAT_VERSION) throw new Error(`a command of format version ${version}; known is ${FORMAT_VERSION}`);
  const atMs = Number(reader.int64());
  const origin = reader.optional((from) => ({ client: from.string(), sequence: from.int64(), acked: from.int64() }));
  const request = decodeRequest(reader.bytes());
  reader.end();
  return { atMs, origin, request };
}
