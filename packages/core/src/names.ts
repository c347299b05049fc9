import { KrabkaError } from "./errors.js";
import { showValue } from "./show-value.js";
import { utf8Length } from "./utf8.js";

/** Longest name in UTF-8 bytes. */
export const MAX_NAME_BYTES = 249;

declare const roleBrand: unique symbol;
declare const memberBrand: unique symbol;

/** The name of a role, checked. It is also the transactional id, byte for byte. */
export type Role = string & { readonly [roleBrand]: true };

/** The name of a member, checked; unique among the live processes that compete for a role. */
export type MemberId = string & { readonly [memberBrand]: true };

/**
 * Length of a role or member id in UTF-8 bytes.
 *
 * @throws {KrabkaError} `INVALID_ARGUMENT` unless `name` is 1 to 249 UTF-8 bytes of well-formed Unicode.
 */
export function nameBytes(what: string, name: unknown): number {
  const bytes = typeof name === "string" ? utf8Length(name) : 0;
  if (bytes >= 1 && bytes <= MAX_NAME_BYTES) return bytes;
  const given =
    bytes > 0 ? `${bytes} bytes` : bytes < 0 ? `${showValue(name)}, which holds a lone surrogate` : showValue(name);
  throw new KrabkaError(
    "INVALID_ARGUMENT",
    `A ${what} is 1 to ${MAX_NAME_BYTES} UTF-8 bytes of well-formed Unicode; got ${given}`,
  );
}

const checked = (what: string, name: string): string => {
  nameBytes(what, name);
  return name;
};

export const Role = {
  /** @throws {KrabkaError} `INVALID_ARGUMENT` unless `name` is 1 to 249 UTF-8 bytes of well-formed Unicode. */
  of: (name: string): Role => checked("role", name) as Role,
} as const;

export const MemberId = {
  /** @throws {KrabkaError} `INVALID_ARGUMENT` unless `name` is 1 to 249 UTF-8 bytes of well-formed Unicode. */
  of: (name: string): MemberId => checked("member id", name) as MemberId,
} as const;
