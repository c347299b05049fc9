import { ByteReader, ByteWriter } from "./binary.js";
import type { Command, Step } from "./command.js";

/** A command as the log keeps it: with the instant at which it was decided. */
export interface Entry {
  /** Service time. */
  readonly atMs: number;
  /** The machine's wall clock, ms since 1970. Only compared with itself, to measure how long the service was down. */
  readonly wallMs: number;
  readonly command: Command;
}

const VERSION = 1;

/** The place in this list is the kind's number on disk: append only. */
const KINDS = [
  "swap",
  "acquire",
  "renew",
  "release",
  "join",
  "heartbeat",
  "suspect",
  "declareDead",
  "leave",
  "batch",
  "expire",
  "open",
] as const satisfies readonly Command["kind"][];

export function encodeEntry(entry: Entry): Uint8Array {
  const writer = new ByteWriter().uint8(VERSION).ms(entry.atMs).ms(entry.wallMs);
  const { command } = entry;
  switch (command.kind) {
    case "batch":
      writer.uint8(KINDS.indexOf("batch")).list(command.steps, writeStep);
      break;
    case "expire": {
      const { suspectAfterMs, deadAfterMs, forgetAfterMs } = command.timings;
      writer.uint8(KINDS.indexOf("expire")).ms(suspectAfterMs).ms(deadAfterMs).ms(forgetAfterMs);
      break;
    }
    case "open":
      writer.uint8(KINDS.indexOf("open")).string(command.historyId).int64(command.raiseBy);
      break;
    default:
      writeStep(writer, command);
  }
  return writer.finish();
}

const writeStep = (writer: ByteWriter, step: Step): void => {
  writer.uint8(KINDS.indexOf(step.kind));
  switch (step.kind) {
    case "swap":
      writer
        .string(step.key)
        .optional(step.expected, (to, value) => to.bytes(value))
        .optional(step.replacement, (to, value) => to.bytes(value))
        .optional(step.expectedVersion, (to, value) => to.string(value))
        .optional(step.holding, (to, { leaseId, epoch }) => to.string(leaseId).int64(epoch));
      break;
    case "acquire":
      writer.string(step.lease).string(step.owner).ms(step.ttlMs);
      break;
    case "renew":
      writer.string(step.lease).string(step.owner).int64(step.epoch).ms(step.ttlMs);
      break;
    case "release":
      writer.string(step.lease).string(step.owner).int64(step.epoch);
      break;
    default:
      writer.string(step.member).int64(step.epoch);
  }
};

/**
 * What a swap expects is a view of `bytes`; what it puts is its own.
 *
 * @throws {Error} saying what is wrong with the bytes.
 */
export function decodeEntry(bytes: Uint8Array): Entry {
  const reader = new ByteReader(bytes);
  const version = reader.uint8();
  if (version !== VERSION)
    throw new Error(`a command of format version ${version}; this package reads version ${VERSION}`);
  const atMs = reader.ms();
  const wallMs = reader.ms();
  const command = readCommand(reader);
  reader.end();
  return { atMs, wallMs, command };
}

const readKind = (reader: ByteReader): Command["kind"] => {
  const number = reader.uint8();
  const kind = KINDS[number];
  if (kind === undefined) throw new Error(`a command of unknown kind ${number}`);
  return kind;
};

const readCommand = (reader: ByteReader): Command => {
  const kind = readKind(reader);
  switch (kind) {
    case "batch":
      return { kind, steps: reader.list((from) => readStep(from, readKind(from))) };
    case "expire":
      return {
        kind,
        timings: { suspectAfterMs: reader.ms(), deadAfterMs: reader.ms(), forgetAfterMs: reader.ms() },
      };
    case "open":
      return { kind, historyId: reader.string(), raiseBy: reader.int64() };
    default:
      return readStep(reader, kind);
  }
};

const readStep = (reader: ByteReader, kind: Command["kind"]): Step => {
  switch (kind) {
    case "swap":
      return {
        kind,
        key: reader.string(),
        expected: reader.optional((from) => from.view()),
        replacement: reader.optional((from) => from.bytes()),
        expectedVersion: reader.optional((from) => from.string()),
        holding: reader.optional((from) => ({ leaseId: from.string(), epoch: from.int64() })),
      };
    case "acquire":
      return { kind, lease: reader.string(), owner: reader.string(), ttlMs: reader.ms() };
    case "renew":
      return { kind, lease: reader.string(), owner: reader.string(), epoch: reader.int64(), ttlMs: reader.ms() };
    case "release":
      return { kind, lease: reader.string(), owner: reader.string(), epoch: reader.int64() };
    case "join":
    case "heartbeat":
    case "suspect":
    case "declareDead":
    case "leave":
      return { kind, member: reader.string(), epoch: reader.int64() };
    default:
      throw new Error(`a step of kind ${kind}`);
  }
};
