import { describe, expect, test } from "vitest";
import { rewriteAnswer } from "../src/address-rewrite.js";
import { WireReader, WireWriter } from "../src/wire.js";

const METADATA = 3;
const FIND_COORDINATOR = 10;
const API_VERSIONS = 18;
const DESCRIBE_CLUSTER = 60;

const relocate = async ({ id }: { id: number }) => ({ host: "proxy", port: 9000 + id });
const rewrite = (apiKey: number, apiVersion: number, answer: WireWriter) =>
  rewriteAnswer({ apiKey, apiVersion }, answer.bytes(), relocate);

/** The brokers of a Metadata answer of that version, with `hosts` in front of a rest that must stay as it is. */
function metadata(version: number, host: string, port: (id: number) => number): WireWriter {
  const flexible = version >= 9;
  const answer = new WireWriter().int32(7);
  if (flexible) answer.varint(0);
  if (version >= 3) answer.int32(0);
  if (flexible) answer.varint(3);
  else answer.int32(2);
  for (const id of [1, 2]) {
    answer.int32(id).string(host, flexible).int32(port(id));
    if (version >= 1) answer.string(id === 1 ? null : "rack", flexible);
    if (flexible) answer.varint(0);
  }
  return answer.string("the rest");
}

describe("Metadata", () => {
  test.each([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])("version %i names the proxy", async (version) => {
    const answer = metadata(version, "a.broker.example", () => 9092);
    const expected = metadata(version, "proxy", (id) => 9000 + id).bytes();
    expect(await rewrite(METADATA, version, answer)).toEqual(expected);
  });
});

describe("FindCoordinator", () => {
  const answer = (version: number, id: number, host: string, port: number) => {
    const flexible = version >= 3;
    const writer = new WireWriter().int32(7);
    if (flexible) writer.varint(0);
    if (version >= 1) writer.int32(0);
    if (version >= 4) {
      writer.varint(2).string("key", true).int32(id).string(host, true).int32(port).int16(0).string(null, true);
      return writer.varint(0).varint(0);
    }
    writer.int16(0);
    if (version >= 1) writer.string(null, flexible);
    writer.int32(id).string(host, flexible).int32(port);
    return flexible ? writer.varint(0) : writer;
  };

  test.each([0, 1, 2, 3, 4, 5, 6])("version %i names the proxy", async (version) => {
    const expected = answer(version, 2, "proxy", 9002).bytes();
    expect(await rewrite(FIND_COORDINATOR, version, answer(version, 2, "broker", 9092))).toEqual(expected);
  });

  test.each([0, 2, 4])("version %i without a coordinator stays as it is", async (version) => {
    const nobody = answer(version, -1, "", -1);
    expect(await rewrite(FIND_COORDINATOR, version, nobody)).toEqual(nobody.bytes());
  });
});

describe("DescribeCluster", () => {
  const answer = (version: number, host: string, port: number) => {
    const writer = new WireWriter().int32(7).varint(0).int32(0).int16(0).string(null, true);
    if (version >= 1) writer.int8(1);
    writer.string("cluster", true).int32(1).varint(2).int32(1).string(host, true).int32(port).string(null, true);
    if (version >= 2) writer.int8(0);
    return writer.varint(0).int32(0).varint(0);
  };

  test.each([0, 1, 2])("version %i names the proxy", async (version) => {
    const expected = answer(version, "proxy", 9001).bytes();
    expect(await rewrite(DESCRIBE_CLUSTER, version, answer(version, "broker", 9092))).toEqual(expected);
  });
});

describe("ApiVersions", () => {
  const offered = (version: number, error: number, flexible: boolean, newest: readonly (readonly number[])[]) => {
    const writer = new WireWriter().int32(7).int16(error);
    if (flexible) writer.varint(newest.length + 1);
    else writer.int32(newest.length);
    for (const [key = 0, max = 0] of newest) {
      writer.int16(key).int16(0).int16(max);
      if (flexible) writer.varint(0);
    }
    return version === 0 ? writer : writer.int32(0);
  };
  const broker = [
    [0, 13],
    [1, 18],
    [METADATA, 13],
    [FIND_COORDINATOR, 9],
    [22, 6],
  ];
  const capped = [
    [0, 9],
    [1, 15],
    [METADATA, 13],
    [FIND_COORDINATOR, 6],
    [22, 6],
  ];

  test.each([0, 1, 2, 3, 4])("version %i offers only what can be rewritten", async (version) => {
    const flexible = version >= 3;
    const expected = offered(version, 0, flexible, capped).bytes();
    expect(await rewrite(API_VERSIONS, version, offered(version, 0, flexible, broker))).toEqual(expected);
  });

  test("the refusal of an unknown version is read as version 0", async () => {
    const refusal = offered(0, 35, false, [[0, 13]]);
    expect(await rewrite(API_VERSIONS, 4, refusal)).toEqual(offered(0, 35, false, [[0, 9]]).bytes());
  });
});

test("any other answer stays as it is", async () => {
  const answer = new WireWriter().int32(7).string("whatever").bytes();
  expect(await rewriteAnswer({ apiKey: 26, apiVersion: 1 }, answer, relocate)).toBe(answer);
});

test.each([0, 1, 127, 128, 300, 2 ** 31 - 1])("the varint %i is read as it was written", (value) => {
  expect(new WireReader(new WireWriter().varint(value).bytes()).varint()).toBe(value);
});
