// CRC-32C (Castagnoli), reflected polynomial; it covers a record batch from its attributes to its end.
const TABLE = new Int32Array(256);
for (let i = 0; i < 256; i++) {
  let remainder = i;
  for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? (remainder >>> 1) ^ 0x82f63b78 : remainder >>> 1;
  TABLE[i] = remainder;
}

/** The checksum of `bytes` from `start` on, as an unsigned 32-bit integer. */
export function crc32c(bytes: Uint8Array, start = 0): number {
  let crc = -1;
  for (let i = start; i < bytes.length; i++) {
    crc = (TABLE[(crc ^ (bytes[i] as number)) & 0xff] as number) ^ (crc >>> 8);
  }
  return (crc ^ -1) >>> 0;
}
