import { KrabkaError } from "./errors.js";
import { utf8Length } from "./utf8.js";

/** Longest name in UTF-8 bytes. */
export const MAX_NAME_BYTES = 249;

declare const roleBrand: unique symbol;
declare const memberBrand: unique symbol;

/** The name of a role, checked. It is also the transactional id, byte for byte. */
export type Role = string & { readonly [roleBrand]: true };

/** The name of a member, checked; unique among the live processes that compete for a role. */
export type MemberId = string & { readonly [memberBrand]: true };

const nameFault = (name: unknown): string | undefined => {
  if (typeof name !== "string") return `got ${name === null ? "null" : typeof name}`;
  const bytes = utf8Length(name);
  if (bytes < 0) return `got ${JSON.stringify(name)}, which holds a lone surrogate`;
  if (bytes === 0) return "got an empty string";
  if (bytes > MAX_NAME_BYTES) return `got ${bytes} bytes`;
  return undefined;
};

const checked = (what: string, name: unknown): string => {
  const fault = nameFault(name);
  if (fault === undefined) return name as string;
  throw new KrabkaError(
    "INVALID_ARGUMENT",
    `A ${what} is 1 to ${MAX_NAME_BYTES} UTF-8 bytes of well-formed Unicode; ${fault}`,
  );
};

export const Role = {
  /** @throws {KrabkaError} `INVALID_ARGUMENT` unless `name` is 1 to 249 UTF-8 bytes of well-formed Unicode. */
  of: (name: string): Role => checked("role", name) as Role,
} as const;

export const MemberId = {
  /** @throws {KrabkaError} `INVALID_ARGUMENT` unless `name` is 1 to 249 UTF-8 bytes of well-formed Unicode. */
  of: (name: string): MemberId => checked("member id", name) as MemberId,
} as const;
