import { describe, expect, it } from "vitest";
import { ByteReader, WireFormatError } from "../src/wire/byte-reader.js";
import { ByteWriter } from "../src/wire/byte-writer.js";
import { encodeEndTxn, encodeInitProducerId } from "../src/wire/transaction-requests.js";

describe("wire codec", () => {
  it.each([0, 1, -1, 63, 64, -64, -65, 2 ** 31 - 1, -(2 ** 31)])("varint %i survives", (value) => {
    expect(new ByteReader(new ByteWriter().varint(value).bytes).varint()).toBe(value);
  });

  it.each([0n, -1n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)])("int64 and varlong %s survive (A8)", (value) => {
    const reader = new ByteReader(new ByteWriter().int64(value).varlong(value).bytes);
    expect([reader.int64(), reader.varlong()]).toEqual([value, value]);
  });

  it.each([0, 1, -1, 1000, -1000, 2 ** 31, 2 ** 52, -(2 ** 52)])("varlong %d is read as a number too", (value) => {
    const reader = new ByteReader(new ByteWriter().varlong(BigInt(value)).int8(7).bytes);
    expect([reader.varlongNumber(), reader.int8()]).toEqual([value, 7]);
  });

  it("refuses to read past the end", () => {
    expect(() => new ByteReader(Buffer.from([0, 5, 65])).string()).toThrow(WireFormatError);
  });

  it("refuses an array that is longer than its bytes, before it allocates", () => {
    expect(() => new ByteReader(new ByteWriter().int32(2 ** 31 - 1).bytes).array(() => 0)).toThrow(WireFormatError);
  });

  it("passes over tagged fields that it does not know", () => {
    const bytes = new ByteWriter()
      .uvarint(2)
      .uvarint(9)
      .uvarint(3)
      .raw(Buffer.from("abc"))
      .uvarint(1)
      .uvarint(0)
      .int8(7);
    const reader = new ByteReader(bytes.bytes);
    reader.tags();
    expect(reader.int8()).toBe(7);
  });

  it("sends -1:-1 in an unconditional InitProducerId, and the own pair in a conditional one", () => {
    const request = { transactionalId: "r", transactionTimeoutMs: 1000 };
    const tail = (own: { producerId: bigint; epoch: number } | undefined): string =>
      encodeInitProducerId({ ...request, own })
        .subarray(6)
        .toString("hex");
    expect(tail(undefined)).toBe("ffffffffffffffffffff00");
    expect(tail({ producerId: 258n, epoch: 3 })).toBe("0000000000000102000300");
  });

  it("encodes EndTxn as its schema says", () => {
    const bytes = encodeEndTxn("role", { producerId: 1n, epoch: 2 }, true);
    expect(bytes.toString("hex")).toBe("0004726f6c650000000000000001000201");
  });
});
