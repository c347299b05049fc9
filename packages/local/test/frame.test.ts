import { crc32 } from "node:zlib";
import { expect, it } from "vitest";
import { encodeFrame, FRAME_HEADER_BYTES, hasFlippedBit } from "../src/log/frame.js";
import { randomFrom } from "./log-script.js";

const SECTOR_BYTES = 512;
const RECORD_BYTES = 64 * 1024 - 4;
const SEED = 7;

/** A frame at the start of a sector, with the place of its last sector but one. */
const frameOf = (record: Uint8Array) => {
  const frame = encodeFrame(SEED, "records", 0n, [record]);
  const lostAt = frame.length - (frame.length % SECTOR_BYTES) - SECTOR_BYTES;
  return { frame, lostAt };
};

/** What single bits add to the checksum of a payload, of one byte in 16. */
const differencesOfOneBit = (payloadBytes: number): ReadonlySet<number> => {
  const differences = new Set<number>();
  const payload = new Uint8Array(payloadBytes);
  const ofZeros = crc32(payload);
  for (let byte = 0; byte < payloadBytes; byte += 16) {
    for (let bit = 0; bit < 8; bit++) {
      payload[byte] = 1 << bit;
      differences.add(crc32(payload) ^ ofZeros);
    }
    payload[byte] = 0;
  }
  return differences;
};

it("H2: a frame of which a sector was lost is no flipped bit, also where its checksum differs as for one", () => {
  const random = randomFrom(1);
  const record = Uint8Array.from({ length: RECORD_BYTES }, () => Math.floor(random() * 256));
  const oneBit = differencesOfOneBit(RECORD_BYTES + 4);
  const { lostAt } = frameOf(record);
  const inRecord = lostAt - FRAME_HEADER_BYTES - 4;
  // The checksum is linear: what the sector adds to it does not depend on the rest.
  const zeros = new Uint8Array(RECORD_BYTES - inRecord);
  const sector = new Uint8Array(zeros.length);
  const ofZeros = crc32(zeros);
  const counter = new DataView(record.buffer, inRecord, 4);
  for (let count = 1; ; count++) {
    counter.setUint32(0, count);
    sector.set(record.subarray(inRecord, inRecord + SECTOR_BYTES));
    if (oneBit.has(crc32(sector) ^ ofZeros)) break;
  }
  const { frame } = frameOf(record);
  frame.fill(0, lostAt, lostAt + SECTOR_BYTES);
  expect(hasFlippedBit(frame, 0, SEED)).toBe(false);
});

it("H3: each flipped bit of a frame that has sectors of zeros is found", () => {
  const record = new Uint8Array(4 * SECTOR_BYTES);
  record.set([1, 2, 3], 700);
  record.fill(9, record.length - 4);
  const { frame } = frameOf(record);
  for (let bit = 0; bit < frame.length * 8; bit++) {
    const byte = bit >> 3;
    const was = frame[byte] as number;
    frame[byte] = was ^ (1 << (bit & 7));
    expect([bit, hasFlippedBit(frame, 0, SEED)]).toEqual([bit, true]);
    frame[byte] = was;
  }
});
