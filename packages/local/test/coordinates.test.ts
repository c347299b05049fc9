import { ABSENT, type LogBackedCoordinationService } from "@krabka/local";
import { describe, expect, it } from "vitest";
import { bytes, rejection } from "./log-script.js";
import { granted, openHost, refused, restart } from "./service-script.js";

const text = async (service: LogBackedCoordinationService, key: string): Promise<string | undefined> => {
  const { found } = await service.get(key);
  return found && Buffer.from(found.value).toString();
};

describe("Coordinates", () => {
  it("compare-and-set succeeds only while the expected value still is there", async () => {
    const { service } = await openHost();
    expect(granted(await service.compareAndSet("k", ABSENT, bytes("1"))).version).toMatch(/^\d+@[0-9a-f]{16}$/);
    expect(refused(await service.compareAndSet("k", ABSENT, bytes("2"))).mismatch).toBe("VALUE");
    expect(refused(await service.compareAndSet("k", bytes("0"), bytes("2"))).mismatch).toBe("VALUE");
    granted(await service.compareAndSet("k", bytes("1"), bytes("")));
    granted(await service.compareAndSet("k", bytes(""), bytes("3")));
    expect(await text(service, "k")).toBe("3");
    expect(refused(await service.delete("k", bytes("2"))).mismatch).toBe("VALUE");
    expect(granted(await service.delete("k", bytes("3"))).version).toBeUndefined();
    expect(await text(service, "k")).toBeUndefined();
    expect(refused(await service.delete("k", bytes("3"))).version).toBeUndefined();
  });

  it("an expected version refuses a value that was changed and changed back", async () => {
    const { service } = await openHost();
    const first = granted(await service.compareAndSet("k", ABSENT, bytes("a"))).version;
    granted(await service.compareAndSet("k", bytes("a"), bytes("b")));
    const third = granted(await service.compareAndSet("k", bytes("b"), bytes("a"))).version;
    const late = await service.compareAndSet("k", bytes("a"), bytes("c"), { expectedVersion: first });
    expect(late).toEqual({ success: false, version: third, mismatch: "VERSION" });
    granted(await service.compareAndSet("k", bytes("a"), bytes("c"), { expectedVersion: third }));
  });

  for (const [name, between] of [
    ["", false],
    [" over a restart with a checkpoint", true],
  ] as const) {
    for (const how of ["compareAndSet", "delete"] as const) {
      it(`H16: a stale ${how} is refused after the key was deleted and created again${name}`, async () => {
        const options = { service: { checkpointAfterBytes: between ? 1 : 1_000_000 } };
        let host = await openHost(options);
        const read = granted(await host.service.compareAndSet("k", ABSENT, bytes("same"))).version;
        granted(await host.service.delete("k", bytes("same")));
        if (between) host = await restart(host, options);
        granted(await host.service.compareAndSet("k", ABSENT, bytes("same")));
        if (between) host = await restart(host, options);
        expect(between ? host.log.checkpoint : undefined).toEqual(between ? expect.anything() : undefined);
        const conditions = { expectedVersion: read };
        const late =
          how === "delete"
            ? await host.service.delete("k", bytes("same"), conditions)
            : await host.service.compareAndSet("k", bytes("same"), bytes("stale"), conditions);
        expect(refused(late).mismatch).toBe("VERSION");
        expect(await text(host.service, "k")).toBe("same");
      });
    }
  }

  it("a change conditional on a lease needs that very tenure, alive", async () => {
    const { service, clock } = await openHost();
    const { lease } = granted(await service.acquireLease("l", "a", 1000));
    const conditions = { leaseId: "l", fencingToken: lease.fencingToken };
    granted(await service.compareAndSet("k", ABSENT, bytes("1"), conditions));
    const other = { leaseId: "other", fencingToken: lease.fencingToken };
    expect(refused(await service.compareAndSet("k", bytes("1"), bytes("2"), other)).mismatch).toBe("LEASE");
    await clock.advance(1000);
    expect(refused(await service.compareAndSet("k", bytes("1"), bytes("2"), conditions)).mismatch).toBe("LEASE");
    granted(await service.acquireLease("l", "a", 1000));
    expect(refused(await service.compareAndSet("k", bytes("1"), bytes("2"), conditions)).mismatch).toBe("LEASE");
    const half = service.compareAndSet("k", bytes("1"), bytes("2"), { leaseId: "l" });
    expect((await rejection(half)).code).toBe("INVALID_ARGUMENT");
  });

  it("keeps its own copy of what the caller gave and hands out copies", async () => {
    const { service } = await openHost();
    const given = bytes("abc");
    const stored = service.compareAndSet("k", ABSENT, given);
    given.fill(0);
    await stored;
    const { found } = await service.get("k");
    found?.value.fill(1);
    expect(await text(service, "k")).toBe("abc");
  });

  it("lists keys with versions in order and never values", async () => {
    const { service } = await openHost();
    for (const key of ["b/2", "a/1", "b/1"]) await service.compareAndSet(key, ABSENT, bytes("secret value"));
    const { found } = await service.list("b/");
    expect(found.map(({ key }) => key)).toEqual(["b/1", "b/2"]);
    const shown = JSON.stringify([found, service.status()], (_, value) =>
      typeof value === "bigint" ? String(value) : value,
    );
    expect(shown).not.toContain("secret");
  });

  it("refuses what exceeds a limit and changes nothing", async () => {
    const { service } = await openHost({
      service: { maxNameBytes: 4, maxValueBytes: 8, maxCoordinates: 2, maxCoordinateBytes: 140 },
    });
    expect((await rejection(service.compareAndSet("", ABSENT, bytes("")))).code).toBe("INVALID_ARGUMENT");
    expect((await rejection(service.compareAndSet("äää", ABSENT, bytes("")))).code).toBe("INVALID_ARGUMENT");
    expect((await rejection(service.compareAndSet("\ud800", ABSENT, bytes("")))).code).toBe("INVALID_ARGUMENT");
    expect((await rejection(service.compareAndSet("k", ABSENT, bytes("123456789")))).code).toBe("LIMIT_REACHED");
    granted(await service.compareAndSet("k1", ABSENT, bytes("")));
    granted(await service.compareAndSet("k2", ABSENT, bytes("")));
    expect((await rejection(service.compareAndSet("k3", ABSENT, bytes("")))).message).toBe(
      "2 are stored and maxCoordinates is 2",
    );
    granted(await service.compareAndSet("k2", bytes(""), bytes("12345678")));
    expect((await rejection(service.compareAndSet("k1", bytes(""), bytes("1")))).message).toBe(
      "140 are stored and maxCoordinateBytes is 140",
    );
    granted(await service.delete("k2", bytes("12345678")));
    granted(await service.compareAndSet("k3", ABSENT, bytes("")));
  });

  it("H9: a transaction over a lease, a coordinate and a member takes place as a whole or not at all", async () => {
    const host = await openHost();
    const steps = [
      { kind: "acquire", lease: "l", owner: "a", ttlMs: 1000 },
      {
        kind: "swap",
        key: "k",
        expected: undefined,
        replacement: bytes("v"),
        expectedVersion: undefined,
        holding: undefined,
      },
      { kind: "join", member: "m", epoch: 1n },
    ] as const;
    const refusedOne = [...steps.slice(0, 2), { kind: "heartbeat", member: "m", epoch: 1n }] as const;
    expect(await host.service.transact(refusedOne)).toMatchObject({
      success: false,
      results: [{ success: true }, { success: true }, { success: false, reason: "JOIN_AGAIN" }],
    });
    expect(host.service.status()).toMatchObject({ coordinates: 0, leases: [], members: [] });
    for (const share of [0, 0.3, 0.6, 0.9]) {
      for (let page = 0; page < 8; page++) {
        const torn = await openHost();
        let syncing = false;
        torn.disk.faults.sync = () => {
          syncing = true;
          return new Promise(() => undefined);
        };
        void torn.service.transact(steps);
        while (!syncing) await new Promise((resolve) => setImmediate(resolve));
        torn.disk.unplug((dirty) => (dirty * 7 + page * 3) % 10 >= share * 10);
        const { coordinates, leases, members } = (await openHost({ disk: torn.disk })).service.status();
        expect([0, 3]).toContain(coordinates + leases.length + members.length);
      }
    }
    expect((await host.service.transact(steps)).success).toBe(true);
    expect((await restart(host)).service.status()).toMatchObject({
      coordinates: 1,
      leases: [{ owner: "a" }],
      members: [{}],
    });
    const twice = [steps[0], { kind: "release", lease: "l", owner: "a", epoch: 1n }] as const;
    expect((await rejection(host.service.transact(twice))).code).toBe("INVALID_ARGUMENT");
  });

  it("an aborted wait rejects, and the command that was taken still takes effect", async () => {
    const { service } = await openHost();
    const before = AbortSignal.abort();
    expect((await rejection(service.compareAndSet("k", ABSENT, bytes("0"), { signal: before }))).code).toBe("ABORTED");
    expect(await text(service, "k")).toBeUndefined();
    const controller = new AbortController();
    const waiting = service.compareAndSet("k", ABSENT, bytes("1"), { signal: controller.signal });
    controller.abort();
    expect((await rejection(waiting)).code).toBe("ABORTED");
    expect(await text(service, "k")).toBe("1");
  });
});
