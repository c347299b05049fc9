import { ByteReader, ByteWriter } from "./binary.js";
import type { Change, MemberStatus } from "./model.js";
import { State } from "./state.js";

const VERSION = 1;

/** The place in this list is the status's number on disk. */
const STATUSES = ["JOINING", "ALIVE", "SUSPECT", "DEAD", "LEFT"] as const satisfies readonly MemberStatus[];

/** Equal states give equal bytes: entries are sorted by name. */
export function encodeState(state: State): Uint8Array {
  return new ByteWriter()
    .uint8(VERSION)
    .int64(state.revision)
    .ms(state.atMs)
    .ms(state.wallMs)
    .int64(state.forgottenEpoch)
    .list(state.histories, (to, { id, after, from }) => to.string(id).int64(after).int64(from))
    .list(sorted(state.coordinates()), (to, [key, { value, version }]) => to.string(key).bytes(value).string(version))
    .list(sorted(state.leases()), (to, [name, { owner, epoch, ttlMs, expiresAtMs }]) =>
      to.string(name).string(owner).int64(epoch).ms(ttlMs).ms(expiresAtMs),
    )
    .list(sorted(state.members()), (to, [id, { status, epoch, sinceMs, heardAtMs }]) =>
      to.string(id).uint8(STATUSES.indexOf(status)).int64(epoch).ms(sinceMs).ms(heardAtMs),
    )
    .finish();
}

const sorted = <T>(map: ReadonlyMap<string, T>): readonly (readonly [string, T])[] =>
  [...map].sort(([a], [b]) => (a < b ? -1 : 1));

/**
 * Reads a state and checks that it makes sense: the checksum of its file says that it is what was written, not that it was
 * right.
 *
 * @throws {Error} saying what is wrong with it.
 */
export function decodeState(bytes: Uint8Array): State {
  const reader = new ByteReader(bytes);
  const version = reader.uint8();
  if (version !== VERSION)
    throw new Error(`a state of format version ${version}; this package reads version ${VERSION}`);
  const revision = reader.int64();
  const atMs = reader.ms();
  const wallMs = reader.ms();
  const forgottenEpoch = reader.int64();
  const histories = reader.list((from) => ({ id: from.string(), after: from.int64(), from: from.int64() }));
  const changes: Change[] = [{ kind: "forgotten-epoch", after: forgottenEpoch }];
  const names = [
    reader.list((from) => {
      const name = from.string();
      const after = { value: from.bytes(), version: from.string() };
      check(
        revisionOf(after.version) <= revision,
        `coordinate ${name} has version ${after.version} of revision ${revision}`,
      );
      changes.push({ kind: "coordinate", name, after });
      return name;
    }),
    reader.list((from) => {
      const name = from.string();
      const after = { owner: from.string(), epoch: from.int64(), ttlMs: from.ms(), expiresAtMs: from.ms() };
      check(
        after.epoch > 0n && after.epoch <= revision,
        `lease ${name} has epoch ${after.epoch} of revision ${revision}`,
      );
      changes.push({ kind: "lease", name, after });
      return name;
    }),
    reader.list((from) => {
      const name = from.string();
      const status = STATUSES[from.uint8()];
      if (status === undefined) throw new Error(`member ${name} has an unknown status`);
      const after = { status, epoch: from.int64(), sinceMs: from.ms(), heardAtMs: from.ms() };
      check(after.sinceMs <= atMs && after.heardAtMs <= atMs, `member ${name} was heard after the last change`);
      changes.push({ kind: "member", name, after });
      return name;
    }),
  ];
  reader.end();
  for (const list of names) {
    check(
      list.every((name, index) => index === 0 || (list[index - 1] as string) < name),
      "names are not in order",
    );
  }
  check(
    histories.every(
      ({ after, from }, index) =>
        after < from && from <= revision && (index === 0 || (histories[index - 1]?.from ?? 0n) <= after),
    ),
    "openings are not in order",
  );
  check(forgottenEpoch >= 0n, `the highest forgotten epoch is ${forgottenEpoch}`);
  return State.restore(revision, histories, changes, atMs, wallMs);
}

const check = (holds: boolean, otherwise: string): void => {
  if (!holds) throw new Error(otherwise);
};

/** The revision in a version, or one above all where it has none. */
const revisionOf = (version: string): bigint => {
  const digits = /^(\d{1,19})@/.exec(version)?.[1];
  return digits === undefined ? 2n ** 64n : BigInt(digits);
};
