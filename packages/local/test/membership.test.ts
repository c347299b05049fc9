import { type LogBackedCoordinationService, MemberKeeper, type MemberResult, type MemberStatus } from "@krabka/local";
import { describe, expect, it } from "vitest";
import { rejection } from "./log-script.js";
import { granted, openHost, refused, restart, settle } from "./service-script.js";

const statusOf = async (service: LogBackedCoordinationService, id = "m"): Promise<string | undefined> => {
  const member = (await service.members()).found.find(({ memberId }) => memberId === id);
  return member && `${member.status} ${member.epoch}`;
};

const EVENTS = ["join", "heartbeat", "suspect", "declareDead", "leave"] as const;

/** Brings member "m" to a status at epoch 5. */
const PATHS: Readonly<Record<MemberStatus | "absent", readonly (typeof EVENTS)[number][]>> = {
  absent: [],
  JOINING: ["join"],
  ALIVE: ["join", "heartbeat"],
  SUSPECT: ["join", "heartbeat", "suspect"],
  DEAD: ["join", "declareDead"],
  LEFT: ["join", "leave"],
};

/** Where each event at the same epoch leads; "=" succeeds and changes nothing; anything else is the refusal. */
const SAME_EPOCH: Readonly<Record<string, Readonly<Record<(typeof EVENTS)[number], string>>>> = {
  absent: {
    join: "JOINING",
    heartbeat: "JOIN_AGAIN",
    suspect: "JOIN_AGAIN",
    declareDead: "JOIN_AGAIN",
    leave: "JOIN_AGAIN",
  },
  JOINING: { join: "=", heartbeat: "ALIVE", suspect: "SUSPECT", declareDead: "DEAD", leave: "LEFT" },
  ALIVE: { join: "STALE_EPOCH", heartbeat: "ALIVE", suspect: "SUSPECT", declareDead: "DEAD", leave: "LEFT" },
  SUSPECT: { join: "STALE_EPOCH", heartbeat: "ALIVE", suspect: "=", declareDead: "DEAD", leave: "LEFT" },
  DEAD: { join: "STALE_EPOCH", heartbeat: "JOIN_AGAIN", suspect: "JOIN_AGAIN", declareDead: "=", leave: "JOIN_AGAIN" },
  LEFT: { join: "STALE_EPOCH", heartbeat: "JOIN_AGAIN", suspect: "JOIN_AGAIN", declareDead: "JOIN_AGAIN", leave: "=" },
};

describe("Membership", () => {
  it("G7: takes only the documented arrows, for every status, event and lower, equal or higher epoch", async () => {
    for (const [from, path] of Object.entries(PATHS)) {
      for (const event of EVENTS) {
        for (const epoch of [4n, 5n, 6n]) {
          const { service } = await openHost();
          for (const step of path) granted(await service[step]("m", 5n));
          const before = await statusOf(service);
          const expected =
            from === "absent" || epoch === 5n
              ? (SAME_EPOCH[from]?.[event] ?? "")
              : event === "join"
                ? epoch > 5n
                  ? "JOINING"
                  : "STALE_EPOCH"
                : epoch > 5n
                  ? "JOIN_AGAIN"
                  : "STALE_EPOCH";
          const result: MemberResult = await service[event]("m", epoch);
          const hint = `${event} at ${epoch} on ${from}`;
          const after = await statusOf(service);
          if (expected === "STALE_EPOCH" || expected === "JOIN_AGAIN") {
            expect(refused(result).reason, hint).toBe(expected);
            expect(refused(result).epochToBeat, hint).toBe(from === "absent" ? 0n : 5n);
            expect(after, hint).toBe(before);
          } else {
            granted(result);
            expect(after, hint).toBe(expected === "=" ? before : `${expected} ${epoch}`);
          }
        }
      }
    }
  });

  it("G6: a member that restarts with a lower epoch is told the number to beat and is ALIVE one round later", async () => {
    const { service } = await openHost();
    granted(await service.join("m", 7n));
    granted(await service.declareDead("m", 7n));
    const told = refused(await service.join("m", 0n));
    expect(told).toMatchObject({ reason: "STALE_EPOCH", epochToBeat: 7n });
    granted(await service.join("m", told.epochToBeat + 1n));
    granted(await service.heartbeat("m", 8n));
    expect(await statusOf(service)).toBe("ALIVE 8");
    refused(await service.heartbeat("m", 7n));
    refused(await service.leave("m", 7n));
    expect(await statusOf(service)).toBe("ALIVE 8");
  });

  it("silence makes a member SUSPECT, then DEAD, then forgotten, and a heartbeat brings back only a SUSPECT one", async () => {
    const { service, clock } = await openHost({
      service: { suspectAfterMs: 100, deadAfterMs: 200, forgetAfterMs: 1000 },
    });
    granted(await service.join("m", 1n));
    granted(await service.heartbeat("m", 1n));
    await clock.advance(99);
    expect(await statusOf(service)).toBe("ALIVE 1");
    await clock.advance(1);
    expect(await statusOf(service)).toBe("SUSPECT 1");
    await clock.advance(199);
    granted(await service.heartbeat("m", 1n));
    await clock.advance(300);
    expect(await statusOf(service)).toBe("DEAD 1");
    expect(refused(await service.heartbeat("m", 1n)).reason).toBe("JOIN_AGAIN");
    await clock.advance(1000);
    expect(await statusOf(service)).toBeUndefined();
  });

  it("G8: a member that was forgotten is told to join again, above every epoch that was forgotten", async () => {
    let host = await openHost({ service: { suspectAfterMs: 100, deadAfterMs: 100, forgetAfterMs: 100 } });
    granted(await host.service.join("m", 9n));
    await host.clock.advance(1000);
    expect(await statusOf(host.service)).toBeUndefined();
    host = await restart(host);
    expect(refused(await host.service.heartbeat("m", 9n))).toMatchObject({ reason: "JOIN_AGAIN", epochToBeat: 9n });
    expect(refused(await host.service.join("m", 9n))).toMatchObject({ reason: "STALE_EPOCH", epochToBeat: 9n });
    granted(await host.service.join("m", 10n));
  });

  it("G8: the keeper joins again by itself when the authority has declared it dead", async () => {
    const { service, clock } = await openHost();
    const keeper = await MemberKeeper.start(service, { memberId: "m", heartbeatMs: 1000, giveUpAfterMs: 5000, clock });
    expect(await statusOf(service)).toBe("ALIVE 1");
    granted(await service.declareDead("m", 1n));
    await clock.advance(1000);
    await settle();
    expect(await statusOf(service)).toBe("ALIVE 2");
    expect(keeper.epoch).toBe(2n);
    await keeper.leave();
    expect(await statusOf(service)).toBe("LEFT 2");
    expect(clock.pendingTimers).toBe(1);
  });

  it("G8: the keeper declares itself out when heartbeats fail or hang for longer than its limit", async () => {
    const { service, clock, disk } = await openHost();
    const keeper = await MemberKeeper.start(service, { memberId: "m", heartbeatMs: 1000, giveUpAfterMs: 5000, clock });
    disk.faults.sync = () => new Promise(() => undefined);
    await clock.advance(4999);
    expect(keeper.signal.aborted).toBe(false);
    await clock.advance(1);
    expect(keeper.signal.reason).toMatchObject({
      code: "LOST",
      message: "Member m is out: no heartbeat was taken for 5000 ms",
    });
  });

  it("the keeper yields to a later life of the same name instead of fighting it", async () => {
    const { service, clock } = await openHost();
    const options = { memberId: "m", heartbeatMs: 1000, giveUpAfterMs: 5000, clock };
    const older = await MemberKeeper.start(service, options);
    const newer = await MemberKeeper.start(service, options);
    expect(newer.epoch).toBe(2n);
    await clock.advance(10_000);
    expect(older.signal.reason).toMatchObject({ code: "LOST" });
    expect(newer.signal.aborted).toBe(false);
    expect(await statusOf(service)).toBe("ALIVE 2");
  });

  it("a restart declares nobody dead without waiting for one more heartbeat", async () => {
    const options = { service: { suspectAfterMs: 100, deadAfterMs: 200 } };
    let host = await openHost(options);
    granted(await host.service.join("m", 1n));
    granted(await host.service.heartbeat("m", 1n));
    host.disk.unplug();
    await host.clock.advance(10_000);
    host = await openHost({ ...options, disk: host.disk, clock: host.clock.fork() });
    expect(await statusOf(host.service)).toBe("SUSPECT 1");
    granted(await host.service.heartbeat("m", 1n));
    expect(await statusOf(host.service)).toBe("ALIVE 1");
  });

  it("what silence brought about comes before a late heartbeat or reading, also when no timer could fire", async () => {
    const { service, clock } = await openHost({ service: { suspectAfterMs: 100, deadAfterMs: 200 } });
    granted(await service.join("m", 1n));
    granted(await service.heartbeat("m", 1n));
    await clock.advance(100);
    clock.freeze();
    await clock.advance(200);
    expect(refused(await service.heartbeat("m", 1n)).reason).toBe("JOIN_AGAIN");
    granted(await service.join("m", 2n));
    await clock.advance(100);
    expect(await statusOf(service)).toBe("SUSPECT 2");
  });

  it("refuses more members than the limit, DEAD and LEFT ones included", async () => {
    const { service } = await openHost({ service: { maxMembers: 2 } });
    granted(await service.join("a", 1n));
    granted(await service.leave("a", 1n));
    granted(await service.join("b", 1n));
    expect((await rejection(service.join("c", 1n))).code).toBe("LIMIT_REACHED");
    granted(await service.join("a", 2n));
  });
});
