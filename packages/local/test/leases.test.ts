import { FencedError, FenceGate, type FencingToken } from "@krabka/core";
import { LeaseKeeper, type LogBackedCoordinationService } from "@krabka/local";
import { describe, expect, it } from "vitest";
import { Disk } from "./disk.js";
import { randomFrom, rejection } from "./log-script.js";
import { granted, openHost, refused, restart, settle } from "./service-script.js";

const holderOf = async (service: LogBackedCoordinationService, lease = "l"): Promise<string | undefined> =>
  (await service.lease(lease)).found?.owner;

describe("Leases", () => {
  it("are exclusive until released or expired, and each grant has a higher token", async () => {
    const { service, clock } = await openHost();
    const first = granted(await service.acquireLease("l", "a", 1000)).lease;
    expect(refused(await service.acquireLease("l", "b", 1000)).holder).toMatchObject({ owner: "a", remainingMs: 1000 });
    expect(refused(await service.acquireLease("l", "a", 1000)).holder?.epoch).toBe(first.epoch);
    await clock.advance(999);
    expect(refused(await service.acquireLease("l", "b", 1000)).holder?.remainingMs).toBe(1);
    await clock.advance(1);
    const second = granted(await service.acquireLease("l", "b", 1000)).lease;
    expect(second.fencingToken.compareTo(first.fencingToken)).toBe(1);
    granted(await service.releaseLease("l", "b", second.epoch));
    const third = granted(await service.acquireLease("l", "a", 1000)).lease;
    expect(third.fencingToken.compareTo(second.fencingToken)).toBe(1);
  });

  it("a renewal keeps the token, extends from now, and never shortens", async () => {
    const { service, clock } = await openHost();
    const { lease } = granted(await service.acquireLease("l", "a", 1000));
    await clock.advance(600);
    expect(granted(await service.renewLease("l", "a", lease.epoch, 1000)).lease).toMatchObject({
      epoch: lease.epoch,
      remainingMs: 1000,
    });
    expect(granted(await service.renewLease("l", "a", lease.epoch, 1)).lease.remainingMs).toBe(1000);
    expect(refused(await service.renewLease("l", "a", lease.epoch + 1n, 1000)).holder?.owner).toBe("a");
    expect(refused(await service.renewLease("l", "b", lease.epoch, 1000)).holder?.owner).toBe("a");
    await clock.advance(1000);
    expect(refused(await service.renewLease("l", "a", lease.epoch, 1000)).holder).toBeUndefined();
  });

  it("F4: a former owner's release changes nothing, with its own token, a guessed one or none", async () => {
    const { service, clock } = await openHost();
    const t1 = granted(await service.acquireLease("l", "a", 1000)).lease.epoch;
    await clock.advance(1000);
    const t2 = granted(await service.acquireLease("l", "b", 60_000)).lease.epoch;
    const before = service.status().at;
    refused(await service.releaseLease("l", "a", t1));
    refused(await service.releaseLease("l", "a", t2));
    refused(await service.releaseLease("l", "b", t1));
    const none = service.releaseLease("l", "a", undefined as unknown as bigint);
    expect((await rejection(none)).code).toBe("INVALID_ARGUMENT");
    expect(service.status().at).toBe(before);
    expect(granted(await service.renewLease("l", "b", t2, 60_000)).lease.owner).toBe("b");
  });

  it("H13: tokens and versions grow over a crash with the clock set back a day", async () => {
    let host = await openHost();
    const epochs: bigint[] = [];
    for (let i = 0; i < 10; i++) {
      const { lease } = granted(await host.service.acquireLease("l", "a", 1000));
      epochs.push(lease.epoch);
      granted(await host.service.releaseLease("l", "a", lease.epoch));
    }
    host.clock.stepWall(-86_400_000);
    host = await restart(host);
    const { epoch } = granted(await host.service.acquireLease("l", "a", 1000)).lease;
    for (const earlier of epochs) expect(epoch).toBeGreaterThan(earlier);
  });

  it("H14: restarts do not prolong a dead holder's lease while the wall clock runs", async () => {
    let host = await openHost();
    const acquired = host.clock.monotonicMs();
    granted(await host.service.acquireLease("l", "dead", 60_000));
    let endedAtMs = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 30; i++) {
      await host.clock.advance(20_000);
      host = await restart(host);
      if ((await holderOf(host.service)) === undefined) {
        endedAtMs = Math.min(endedAtMs, host.clock.monotonicMs() - acquired);
      }
    }
    expect(endedAtMs).toBe(60_000);
  });

  it("H14: each time the wall clock goes back over a restart costs at most the time since the last record", async () => {
    let host = await openHost();
    granted(await host.service.acquireLease("l", "dead", 60_000));
    await host.clock.advance(20_000);
    host.clock.stepWall(-86_400_000);
    host = await restart(host);
    expect((await host.service.lease("l")).found?.remainingMs).toBe(60_000);
    for (let i = 0; i < 3; i++) {
      await host.clock.advance(20_000);
      host = await restart(host);
    }
    expect(await holderOf(host.service)).toBeUndefined();
  });

  it("H14: a holder that renews never loses its lease by a restart shorter than what remains", async () => {
    let host = await openHost();
    const { epoch } = granted(await host.service.acquireLease("l", "a", 60_000)).lease;
    for (let i = 0; i < 30; i++) {
      await host.clock.advance(10_000);
      granted(await host.service.renewLease("l", "a", epoch, 60_000));
      host.disk.unplug();
      await host.clock.advance(59_000);
      host = await openHost({ disk: host.disk, clock: host.clock.fork() });
      granted(await host.service.renewLease("l", "a", epoch, 60_000));
    }
  });

  it("H15: a renewal that came in time wins over the expiry, although the disk stalled over the deadline", async () => {
    const { service, clock, disk } = await openHost();
    const { epoch } = granted(await service.acquireLease("l", "a", 15_000)).lease;
    let release = (): void => undefined;
    disk.faults.sync = () =>
      new Promise((resolve) => {
        release = resolve;
      });
    const first = service.join("m", 1n);
    await clock.advance(5_000);
    const renewal = service.renewLease("l", "a", epoch, 15_000);
    await clock.advance(11_000);
    const rival = service.acquireLease("l", "b", 15_000);
    await clock.advance(1_000);
    disk.faults = {};
    release();
    await first;
    expect(granted(await renewal).lease.epoch).toBe(epoch);
    expect(refused(await rival).holder).toMatchObject({ owner: "a", epoch });
  });

  it("H15: a renewal that came too late loses, and the rival's token is new", async () => {
    const { service, clock, disk } = await openHost();
    const { epoch } = granted(await service.acquireLease("l", "a", 15_000)).lease;
    let release = (): void => undefined;
    disk.faults.sync = () =>
      new Promise((resolve) => {
        release = resolve;
      });
    const first = service.join("m", 1n);
    await clock.advance(15_000);
    const renewal = service.renewLease("l", "a", epoch, 15_000);
    const rival = service.acquireLease("l", "b", 15_000);
    await clock.advance(5_000);
    disk.faults = {};
    release();
    await first;
    refused(await renewal);
    expect(granted(await rival).lease.epoch).toBeGreaterThan(epoch);
  });

  it("H12: after a restored backup old versions and resume points are refused, and a gate refuses lower tokens", async () => {
    const gate = FenceGate.inMemory();
    const grow = async (service: LogBackedCoordinationService, to: number): Promise<(string | undefined)[]> => {
      const versions: (string | undefined)[] = [];
      for (let i = 0; i < to; i++) {
        const { lease } = granted(await service.acquireLease("l", "a", 1000));
        await gate.admit(lease.fencingToken).catch(() => undefined);
        granted(await service.releaseLease("l", "a", lease.epoch));
        const current = (await service.get("k")).found;
        const expected = current?.value ?? "absent";
        versions.push(granted(await service.compareAndSet("k", expected, new Uint8Array([7]))).version);
      }
      return versions;
    };
    const host = await openHost();
    await grow(host.service, 10);
    const backup = host.disk.copy();
    const lost = await grow(host.service, 10);
    const { at, history } = host.service.status();
    const highest = gate.highest as FencingToken;

    const restored = await openHost({ disk: backup });
    expect(restored.service.status().history).not.toBe(history);
    expect((await rejection(restored.service.watch(() => undefined, { from: at }))).code).toBe("OTHER_HISTORY");
    const reissued = granted(await restored.service.acquireLease("gated", "a", 1000)).lease.fencingToken;
    expect(reissued.compareTo(highest)).toBe(-1);
    expect(await gate.admit(reissued).catch(FencedError.is)).toBe(true);
    let twins = 0;
    for (let i = 0; i < 100; i++) {
      const current = (await restored.service.get("k")).found;
      const { version } = granted(
        await restored.service.compareAndSet("k", current?.value ?? "absent", new Uint8Array([7])),
      );
      const twin = lost.find((old) => old?.split("@")[0] === version?.split("@")[0]);
      if (twin === undefined) continue;
      twins += 1;
      const late = await restored.service.compareAndSet("k", new Uint8Array([7]), new Uint8Array([8]), {
        expectedVersion: twin,
      });
      expect(refused(late).mismatch).toBe("VERSION");
    }
    expect(twins).toBeGreaterThan(5);
    // The numbers have come again by now; the history tells them apart.
    expect((await rejection(restored.service.watch(() => undefined, { from: at }))).code).toBe("OTHER_HISTORY");
  });

  it("H12: what time brought about before the opening of a backup is never taken for the change that was lost", async () => {
    const host = await openHost();
    granted(await host.service.acquireLease("l", "a", 1000));
    const backup = host.disk.copy();
    granted(await host.service.compareAndSet("k", "absent", new Uint8Array([7])));
    const { at } = host.service.status();
    const clock = host.clock.fork();
    await clock.advance(1000);
    const restored = await openHost({ disk: backup, clock });
    expect((await rejection(restored.service.watch(() => undefined, { from: at }))).code).toBe("OTHER_HISTORY");
  });

  it("H12: raising the counters at the opening puts new tokens above all that were lost with the backup", async () => {
    const host = await openHost();
    const backup = host.disk.copy();
    const lost = granted(await host.service.acquireLease("l", "a", 1000)).lease;
    const plain = await openHost({ disk: backup.copy() });
    expect(granted(await plain.service.acquireLease("l", "a", 1000)).lease.epoch - lost.epoch).toBeLessThan(10n);
    const raised = await openHost({ disk: backup, service: { raiseCountersBy: 1_000_000n } });
    expect(granted(await raised.service.acquireLease("l", "a", 1000)).lease.epoch - lost.epoch).toBeGreaterThan(
      999_000n,
    );
    expect((await rejection(raised.service.watch(() => undefined, { from: host.service.status().at }))).code).toBe(
      "OTHER_HISTORY",
    );
  });

  it("E10: the keeper never has two renewals in flight and loses nothing while answers are slow", async () => {
    const { service, clock } = await openHost();
    const random = randomFrom(10);
    let inFlight = 0;
    let most = 0;
    let renewals = 0;
    const slow = Object.create(service, {
      renewLease: {
        value: async (...args: Parameters<LogBackedCoordinationService["renewLease"]>) => {
          inFlight += 1;
          renewals += 1;
          most = Math.max(most, inFlight);
          await new Promise<void>((resolve) => void clock.setTimer((1500 + random() * 2500) / 2, resolve));
          const result = await service.renewLease(...args);
          await new Promise<void>((resolve) => void clock.setTimer((1500 + random() * 2500) / 2, resolve));
          inFlight -= 1;
          return result;
        },
      },
      acquireLease: { value: service.acquireLease.bind(service) },
      releaseLease: { value: service.releaseLease.bind(service) },
    }) as LogBackedCoordinationService;
    const acquired = await LeaseKeeper.acquire(slow, { leaseId: "l", owner: "a", ttlMs: 10_000, renewMs: 1000, clock });
    const { keeper } = granted(acquired);
    for (let second = 0; second < 300; second++) {
      await clock.advance(1000);
      expect(keeper.isHeld).toBe(true);
    }
    expect(most).toBe(1);
    expect(renewals).toBeGreaterThan(50);
    const released = keeper.release();
    await clock.advance(5000);
    await released;
    expect(await holderOf(service)).toBeUndefined();
  });

  it("a keeper that cannot renew says so once, before the lease is given to somebody else", async () => {
    const { service, clock, disk } = await openHost();
    const acquired = await LeaseKeeper.acquire(service, { leaseId: "l", owner: "a", ttlMs: 9000, clock });
    const { keeper } = granted(acquired);
    const reasons: unknown[] = [];
    keeper.signal.addEventListener("abort", () => reasons.push(keeper.signal.reason.code));
    disk.faults.sync = () => new Promise(() => undefined);
    await clock.advance(8999 + 3000);
    expect(keeper.isHeld).toBe(false);
    expect(reasons).toEqual(["LOST"]);
    expect(() => keeper.fencingToken).toThrow("Lease l is not held any more");
  });

  it("a keeper counts from before its renewal, however late the answer comes", async () => {
    const { service, clock } = await openHost();
    let delayMs = 4000;
    const slow = {
      acquireLease: service.acquireLease.bind(service),
      renewLease: async (...args: Parameters<LogBackedCoordinationService["renewLease"]>) => {
        const result = await service.renewLease(...args);
        await new Promise<void>((resolve) => void clock.setTimer(delayMs, resolve));
        delayMs = 1_000_000;
        return result;
      },
    } as unknown as LogBackedCoordinationService;
    const options = { leaseId: "l", owner: "a", ttlMs: 9000, renewMs: 3000, clock };
    const { keeper } = granted(await LeaseKeeper.acquire(slow, options));
    // Renewed at 3000, answered at 7000: held until 12000. The next one is never answered.
    await clock.advance(11_999);
    expect(keeper.isHeld).toBe(true);
    await clock.advance(1);
    expect(keeper.isHeld).toBe(false);
    expect(keeper.signal.reason).toMatchObject({ code: "LOST" });
  });

  it("a keeper that said once that it holds nothing does not hold it again, whatever answer comes after a stall", async () => {
    const { service, clock } = await openHost();
    let answer = (): void => undefined;
    const answered = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const slow = {
      acquireLease: service.acquireLease.bind(service),
      renewLease: async (...args: Parameters<LogBackedCoordinationService["renewLease"]>) => {
        const result = await service.renewLease(...args);
        await answered;
        return result;
      },
    } as unknown as LogBackedCoordinationService;
    const options = { leaseId: "l", owner: "a", ttlMs: 9000, renewMs: 3000, clock };
    const { keeper } = granted(await LeaseKeeper.acquire(slow, options));
    await clock.advance(8999);
    clock.freeze();
    await clock.advance(1);
    expect(keeper.isHeld).toBe(false);
    answer();
    await settle();
    expect(keeper.isHeld).toBe(false);
    expect(keeper.signal.reason).toMatchObject({ code: "LOST", message: "Lease l was not renewed in time" });
  });

  it("a keeper is told when somebody else holds its lease", async () => {
    const { service, clock } = await openHost();
    const { keeper } = granted(await LeaseKeeper.acquire(service, { leaseId: "l", owner: "a", ttlMs: 9000, clock }));
    granted(await service.releaseLease("l", "a", keeper.lease.epoch));
    granted(await service.acquireLease("l", "b", 9000));
    await clock.advance(3000);
    await settle();
    expect(keeper.signal.reason).toMatchObject({ code: "LOST", message: "Lease l is held by b now" });
    expect(await holderOf(service)).toBe("b");
  });

  it("a lease that nobody asks about ends by itself, in a record of its own", async () => {
    const { service, clock } = await openHost({ disk: new Disk() });
    granted(await service.acquireLease("l", "a", 1000));
    const before = service.status().log.end;
    await clock.advance(1000);
    await settle();
    expect(service.status().log.end).toBe(before + 1n);
    expect(service.status().leases).toEqual([]);
  });
});
