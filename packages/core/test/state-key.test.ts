import { encodeEntry, MemberId, Role, roleOfKey, stateKeyOf } from "@krabka/core";
import { describe, expect, it } from "vitest";

const role = Role.of("controller");
const member = MemberId.of("a");
const key = encodeEntry({ kind: "registration-removed", role, member }).key as Uint8Array;

describe("the role of a key", () => {
  it("is found although the record does not decode", () => {
    expect(roleOfKey(key)).toBe("controller");
    expect(roleOfKey(key.subarray(0, 6 + role.length))).toBe("controller");
  });

  it("is undefined for bytes that are no key", () => {
    for (const bytes of [null, new Uint8Array(), key.subarray(0, 5), key.subarray(0, 6 + role.length - 1)]) {
      expect(roleOfKey(bytes)).toBeUndefined();
    }
    expect(roleOfKey(new Uint8Array([0, 0, 0, 0, 0, 1, 0xff]))).toBeUndefined();
  });
});

describe("the key of a record in a state", () => {
  const lease = (producerId: bigint) =>
    ({
      kind: "lease",
      role,
      member,
      pair: { producerId, epoch: 0 },
      term: 1n,
      grantedAtMs: 0n,
      deadlineMs: 1n,
      attributes: {},
      offset: 1n,
    }) as const;

  it("is one for a registration and its tombstone", () => {
    const removed = { kind: "registration-removed", role, member, offset: 1n } as const;
    const registered = { ...removed, kind: "registration", registeredAtMs: 0n, attributes: {} } as const;
    expect(stateKeyOf(registered)).toBe(stateKeyOf(removed));
  });

  it("tells apart what hides nothing of each other: members, producer ids, the lease's tombstone", () => {
    const keys = [
      stateKeyOf({ kind: "registration-removed", role, member, offset: 1n }),
      stateKeyOf({ kind: "registration-removed", role, member: MemberId.of("b"), offset: 1n }),
      stateKeyOf(lease(1n)),
      stateKeyOf(lease(2n)),
      stateKeyOf({ kind: "lease-removed", role, offset: 1n }),
    ];
    expect(new Set(keys).size).toBe(keys.length);
  });
});
