import { KrabkaError } from "./errors.js";

// TextEncoder and TextDecoder are globals of the platform, not of the language; this package uses neither.

/**
 * Number of bytes that `text` takes in UTF-8, or -1 if it holds a lone surrogate and so has no UTF-8 form.
 */
export function utf8Length(text: string): number {
  let length = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) length += 1;
    else if (unit < 0x800) length += 2;
    else if (unit < 0xd800 || unit > 0xdfff) length += 3;
    else {
      const low = text.charCodeAt(i + 1);
      if (unit > 0xdbff || !(low >= 0xdc00 && low <= 0xdfff)) return -1;
      length += 4;
      i += 1;
    }
  }
  return length;
}

/** Writes well-formed `text` at `at` and returns the position after it. */
export function writeUtf8(bytes: Uint8Array, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) {
    let code = text.charCodeAt(i);
    if (code < 0x80) {
      bytes[at++] = code;
      continue;
    }
    if (code < 0x800) {
      bytes[at++] = 0xc0 | (code >> 6);
    } else {
      if (code >= 0xd800 && code <= 0xdbff) {
        code = 0x10000 + ((code - 0xd800) << 10) + (text.charCodeAt(++i) - 0xdc00);
        bytes[at++] = 0xf0 | (code >> 18);
        bytes[at++] = 0x80 | ((code >> 12) & 0x3f);
      } else {
        bytes[at++] = 0xe0 | (code >> 12);
      }
      bytes[at++] = 0x80 | ((code >> 6) & 0x3f);
    }
    bytes[at++] = 0x80 | (code & 0x3f);
  }
  return at;
}

/** @throws {KrabkaError} `INVALID_ARGUMENT` when `text` holds a lone surrogate. */
export function encodeUtf8(text: string): Uint8Array {
  const length = utf8Length(text);
  if (length < 0) throw new KrabkaError("INVALID_ARGUMENT", `Text holds a lone surrogate: ${JSON.stringify(text)}`);
  const bytes = new Uint8Array(length);
  writeUtf8(bytes, 0, text);
  return bytes;
}

/** One call for many units makes a flat string; one call for all of a long text would overflow the stack. */
const MAX_UNITS_PER_CALL = 512;

const malformed = (at: number): KrabkaError => new KrabkaError("MALFORMED_RECORD", `Not UTF-8 at byte ${at}`);

/**
 * Decodes strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
 *
 * @throws {KrabkaError} `MALFORMED_RECORD`
 */
export function decodeUtf8(bytes: Uint8Array, start = 0, end = bytes.length): string {
  let text = "";
  const units: number[] = [];
  let at = start;
  while (at < end) {
    if (units.length >= MAX_UNITS_PER_CALL) {
      text += String.fromCharCode(...units);
      units.length = 0;
    }
    const lead = bytes[at] as number;
    if (lead < 0x80) {
      units.push(lead);
      at += 1;
      continue;
    }
    const size = lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
    if (size === 0 || at + size > end) throw malformed(at);
    let code = lead & (0xff >> (size + 1));
    for (let i = 1; i < size; i++) {
      const next = bytes[at + i] as number;
      if ((next & 0xc0) !== 0x80) throw malformed(at + i);
      code = (code << 6) | (next & 0x3f);
    }
    const shortest = size === 2 ? 0x80 : size === 3 ? 0x800 : 0x10000;
    if (code < shortest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw malformed(at);
    if (code < 0x10000) units.push(code);
    else units.push(0xd7c0 + (code >> 10), 0xdc00 | (code & 0x3ff));
    at += size;
  }
  return text + String.fromCharCode(...units);
}
