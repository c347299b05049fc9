import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { decompress } from "../src/decompress.js";
import { crc32c } from "../src/wire/crc32c.js";
import { decodeBatches, encodeBatch, ORDINARY_PRODUCER, type TimedRecord } from "../src/wire/record-batch.js";

const bytes = (text: string): Uint8Array => Buffer.from(text, "utf8");
const RECORDS: readonly TimedRecord[] = [
  {
    key: bytes("key"),
    value: bytes("välue"),
    headers: [{ key: "h", value: bytes("x") }],
    timestampMs: 1_700_000_000_000,
  },
  { key: null, value: bytes(""), headers: [], timestampMs: 1_700_000_000_007 },
  { key: bytes("gone"), value: null, headers: [], timestampMs: 1_699_999_999_999 },
];

// Made with kafkajs 2.2.4 (src/protocol/recordBatch): the first of RECORDS under pair (9007199254740993, 7), sequence 41,
// transactional.
const FROM_KAFKAJS =
  "000000000000000000000045ffffffff02dfb1d82a0010000000000000018bcfe568000000018bcfe5680000200000000000010007000000290000000126000000066b65790c76c3a46c75650202680278";

const decodeOne = async (batch: Buffer) => {
  const [decoded] = await decodeBatches(batch, decompress);
  if (decoded === undefined) throw new Error("No batch was decoded");
  return decoded;
};

/** Turns the records of an encoded batch into compressed ones, as a foreign writer would. */
const withCodec = (batch: Buffer, codec: number, compress: (plain: Buffer) => Buffer): Buffer => {
  const compressed = Buffer.concat([batch.subarray(0, 61), compress(batch.subarray(61))]);
  compressed.writeInt32BE(compressed.length - 12, 8);
  compressed.writeInt16BE(codec, 21);
  compressed.writeUInt32BE(crc32c(compressed.subarray(21)), 17);
  return compressed;
};

describe("record batch", () => {
  it("gives back what was written, byte for byte", async () => {
    const { content } = await decodeOne(encodeBatch(RECORDS, ORDINARY_PRODUCER));
    const plain = RECORDS.map(({ key, value, headers, timestampMs }, index) => ({
      offset: BigInt(index),
      key: key && Buffer.from(key),
      value: value && Buffer.from(value),
      headers: headers.map((header) => ({ key: header.key, value: Buffer.from(header.value) })),
      timestampMs,
    }));
    expect(content).toEqual({ kind: "records", records: plain });
  });

  it("is the same bytes that kafkajs encodes", () => {
    const identity = { producerId: 9007199254740993n, epoch: 7, baseSequence: 41, transactional: true };
    expect(encodeBatch(RECORDS.slice(0, 1), identity).toString("hex")).toBe(FROM_KAFKAJS);
  });

  it("names its producer, so that markers find their records", async () => {
    const identity = { producerId: 2n ** 62n + 1n, epoch: 32767, baseSequence: 0, transactional: true };
    const batch = await decodeOne(encodeBatch(RECORDS, identity));
    expect(batch.producerId).toBe(2n ** 62n + 1n);
    expect(batch.transactional).toBe(true);
    expect(batch.lastOffset).toBe(2n);
  });

  it("is malformed, and passed over whole, when a bit flipped", async () => {
    const batch = encodeBatch(RECORDS, ORDINARY_PRODUCER);
    batch[80] = (batch[80] as number) ^ 1;
    const { content, lastOffset } = await decodeOne(batch);
    expect(content.kind).toBe("malformed");
    expect(lastOffset).toBe(2n);
  });

  it("of a foreign writer may be compressed with gzip", async () => {
    const { content } = await decodeOne(
      withCodec(encodeBatch(RECORDS, ORDINARY_PRODUCER), 1, (plain) => gzipSync(plain)),
    );
    expect(content.kind === "records" && content.records.length).toBe(3);
  });

  it("is malformed when its codec is not registered with kafkajs", async () => {
    const { content } = await decodeOne(withCodec(encodeBatch(RECORDS, ORDINARY_PRODUCER), 4, (plain) => plain));
    expect(content.kind).toBe("malformed");
  });

  it("that is cut at the end of an answer is left for the next fetch", async () => {
    const whole = encodeBatch(RECORDS, ORDINARY_PRODUCER);
    const batches = await decodeBatches(Buffer.concat([whole, whole.subarray(0, whole.length - 1)]), decompress);
    expect(batches.length).toBe(1);
  });

  it("has the checksum of RFC 3720", () => {
    expect(crc32c(bytes("123456789"))).toBe(0xe3069283);
    expect(crc32c(new Uint8Array(32))).toBe(0x8a9136aa);
  });
});
