import { promisify } from "node:util";
import { gunzip } from "node:zlib";
import kafkajs from "kafkajs";
import type { Decompress } from "./wire/record-batch.js";

const GZIP = 1;
/** Far more than a batch of the coordination topic can be; a broker's default limit is 1 MiB compressed. */
const MAX_PLAIN_BYTES = 64 * 1024 * 1024;

const unzip = promisify(gunzip);

/** Codecs that were registered with kafkajs are used for batches of foreign writers; gzip always works. */
export const decompress: Decompress = async (codec, bytes) => {
  if (codec === GZIP) return unzip(bytes, { maxOutputLength: MAX_PLAIN_BYTES });
  const registered = (kafkajs.CompressionCodecs as Record<number, (() => unknown) | undefined>)[codec];
  // Unregistered codecs are entries that throw, which makes the batch count as malformed.
  const implementation = registered?.() as { decompress?: (buffer: Buffer) => Promise<Buffer> } | undefined;
  if (implementation?.decompress === undefined) {
    throw new Error(`No codec for compression type ${codec} is registered with kafkajs`);
  }
  return implementation.decompress(bytes);
};
