import { type Attributes, MAX_INT64, MemberId, MIN_INT64, Role, utf8Length } from "@krabka/core";
import fc from "fast-check";

/** Around the bounds of JavaScript's exact integers and of int64, where a detour through a number shows. */
const TELLING_IDS = [0n, 1n, 2n ** 53n - 1n, 2n ** 53n, 2n ** 53n + 1n, MAX_INT64 - 1n, MAX_INT64];

export const int64 = fc.oneof(
  fc.bigInt({ min: MIN_INT64, max: MAX_INT64 }),
  fc.constantFrom(MIN_INT64, MIN_INT64 + 1n, -1n, ...TELLING_IDS),
);
/** Producer ids and terms. */
export const id = fc.oneof(fc.bigInt({ min: 0n, max: MAX_INT64 }), fc.constantFrom(...TELLING_IDS));
export const epoch = fc.oneof(fc.integer({ min: 0, max: 32767 }), fc.constantFrom(0, 32766, 32767));
export const pair = fc.record({ producerId: id, epoch });

/** Any well-formed text of at least one character. */
const name = fc
  .string({ unit: "binary", minLength: 1, maxLength: 249 })
  .filter((text) => utf8Length(text) >= 1 && utf8Length(text) <= 249);
export const role = name.map((text) => Role.of(text));
export const member = name.map((text) => MemberId.of(text));

export const attributes: fc.Arbitrary<Attributes> = fc.dictionary(fc.string({ unit: "binary" }), fc.string(), {
  maxKeys: 4,
});
