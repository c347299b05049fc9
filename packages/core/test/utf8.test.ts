import { decodeUtf8, encodeUtf8, KrabkaError, utf8Length } from "@krabka/core";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const encoder = new TextEncoder();
const strictDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Any sequence of UTF-16 units, so lone surrogates too. */
const units = fc
  .array(fc.oneof(fc.integer({ min: 0, max: 0xffff }), fc.integer({ min: 0xd700, max: 0xe0ff })), { maxLength: 40 })
  .map((codes) => String.fromCharCode(...codes));

/** Bytes that are nearly UTF-8: pieces of text, overlong and cut forms, surrogates, and noise. */
const nearlyUtf8 = fc
  .array(
    fc.oneof(
      fc.string({ unit: "binary", maxLength: 4 }).map((text) => [...encoder.encode(text)]),
      fc.uint8Array({ maxLength: 3 }).map((noise) => [...noise]),
      fc.tuple(
        fc.constantFrom(0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff),
        fc.constantFrom(0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0),
        fc.constantFrom(0x7f, 0x80, 0xbf, 0xc0),
        fc.constantFrom(0x7f, 0x80, 0xbf, 0xc0),
      ),
    ),
    { maxLength: 6 },
  )
  .map((pieces) => Uint8Array.from(pieces.flat()));

const strictly = (bytes: Uint8Array): string | undefined => {
  try {
    return strictDecoder.decode(bytes);
  } catch {
    return undefined;
  }
};

const ours = (bytes: Uint8Array): string | undefined => {
  try {
    return decodeUtf8(bytes);
  } catch (error) {
    expect(KrabkaError.is(error) && error.code).toBe("MALFORMED_RECORD");
    return undefined;
  }
};

describe("UTF-8", () => {
  it("is encoded like the platform does it", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        expect(encodeUtf8(text)).toEqual(encoder.encode(text));
        expect(utf8Length(text)).toBe(encoder.encode(text).length);
      }),
      { numRuns: 1000 },
    );
  });

  it("has no form for a lone surrogate, which is refused and not replaced", () => {
    fc.assert(
      fc.property(units, (text) => {
        // Encoding replaces a lone surrogate; so the text survives a round trip if and only if it is well-formed.
        const wellFormed = strictDecoder.decode(encoder.encode(text)) === text;
        expect(utf8Length(text)).toBe(wellFormed ? encoder.encode(text).length : -1);
        if (wellFormed) expect(encodeUtf8(text)).toEqual(encoder.encode(text));
        else expect(() => encodeUtf8(text)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
      }),
      { numRuns: 2000 },
    );
  });

  it("is decoded like the platform's strict decoder does it, byte-order marks kept", () => {
    fc.assert(
      fc.property(nearlyUtf8, (bytes) => {
        expect(ours(bytes)).toBe(strictly(bytes));
      }),
      { numRuns: 10_000 },
    );
  });

  it("is decoded right for every two bytes", () => {
    const bytes = new Uint8Array(2);
    for (let first = 0; first < 256; first++) {
      for (let second = 0; second < 256; second++) {
        bytes[0] = first;
        bytes[1] = second;
        if (ours(bytes) !== strictly(bytes)) expect.fail(`differs for ${first}, ${second}`);
      }
    }
  });

  it("is decoded right at the first and last code points of each length", () => {
    for (const code of [0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfeff, 0xffff, 0x10000, 0x10ffff]) {
      const text = String.fromCodePoint(code);
      expect(decodeUtf8(encodeUtf8(text))).toBe(text);
    }
  });

  it("is decoded whole when it is long, also where a character of two units lies on every boundary", () => {
    for (const text of ["x".repeat(1_000_000), "👑".repeat(100_001), `x${"👑".repeat(100_001)}`]) {
      expect(decodeUtf8(encoder.encode(text)) === text).toBe(true);
    }
  });

  it("is decoded from a part of the bytes without looking past its end", () => {
    const bytes = encoder.encode("aä役");
    expect(decodeUtf8(bytes, 1, 3)).toBe("ä");
    expect(() => decodeUtf8(bytes, 1, 2)).toThrow(expect.objectContaining({ code: "MALFORMED_RECORD" }));
    expect(() => decodeUtf8(bytes, 3, 5)).toThrow(expect.objectContaining({ code: "MALFORMED_RECORD" }));
  });
});
