import { ABSENT, LocalError, LogBackedCoordinationService } from "@krabka/local";
import { describe, expect, it } from "vitest";
import { encodeEntry } from "../src/state/command-codec.js";
import { Disk } from "./disk.js";
import { bytes, openLog, rejection } from "./log-script.js";
import { granted, type Host, openHost, restart, settle } from "./service-script.js";

const OPTIONS = { service: { checkpointAfterBytes: 400 }, log: { segmentBytes: 500 } };

interface Told {
  readonly tokens: bigint[];
  readonly values: string[];
  readonly failures: string[];
}

/** Twenty steps: acquire, change a coordinate, release; and what was acknowledged of them. */
const script = async ({ service }: Host, told: Told, round: string): Promise<void> => {
  const attempt = async <R extends { readonly success: boolean }>(call: Promise<R>): Promise<R | undefined> => {
    try {
      const result = await call;
      if (told.failures.length > 0) throw new Error("A success came after a failure");
      return result;
    } catch (error) {
      if (!LocalError.is(error)) throw error;
      told.failures.push(error.code);
      return undefined;
    }
  };
  for (let i = 0; i < 7; i++) {
    const acquired = await attempt(service.acquireLease("l", "a", 1000));
    if (acquired?.success === true) told.tokens.push(acquired.lease.epoch);
    const last = told.values.at(-1);
    const value = `${round}.${i}`;
    const changed = await attempt(service.compareAndSet("k", last === undefined ? ABSENT : bytes(last), bytes(value)));
    if (changed?.success === true) told.values.push(value);
    if (acquired?.success === true) await attempt(service.releaseLease("l", "a", acquired.lease.epoch));
  }
};

describe("A service on failing storage", () => {
  it("H1: after one failed sync nothing succeeds until reopened; no token comes twice, no success is missing", async () => {
    let failedOnce = true;
    for (let k = 0; failedOnce; k++) {
      const disk = new Disk();
      let host = await openHost({ ...OPTIONS, disk });
      let syncs = 0;
      disk.faults.sync = () => {
        if (syncs++ === k) throw new Error("EIO");
      };
      const told: Told = { tokens: [], values: [], failures: [] };
      await script(host, told, "first");
      await settle();
      failedOnce = syncs > k;
      if (!failedOnce) break;
      expect(new Set(told.failures).size).toBeLessThanOrEqual(1);
      const isLater = await host.service.get("k").catch((error: LocalError) => error.code);
      expect(isLater).toBe("FAILED");
      await host.service.close();
      host = await restart(host, OPTIONS);
      const found = (await host.service.get("k")).found;
      const value = found && Buffer.from(found.value).toString();
      const acknowledged = told.values.at(-1);
      if (value !== acknowledged) {
        const next = acknowledged === undefined ? 0 : Number(acknowledged.split(".")[1]) + 1;
        expect(value, `sync ${k}`).toBe(`first.${next}`);
      }
      await host.clock.advance(1000);
      const again = granted(await host.service.acquireLease("l", "b", 1000)).lease.epoch;
      for (const token of told.tokens) expect(again, `sync ${k}`).toBeGreaterThan(token);
      expect(k).toBeLessThan(100);
    }
  });

  it("reads are refused after a failure too, since what they would show may not be on the disk", async () => {
    const { service, disk } = await openHost();
    disk.faults.sync = () => {
      throw new Error("EIO");
    };
    const writing = rejection(service.compareAndSet("k", ABSENT, bytes("x")));
    const reading = rejection(service.get("k"));
    expect([(await writing).code, (await reading).code]).toEqual(["FAILED", "FAILED"]);
    expect(service.status().log.failure).toBeDefined();
  });

  it("refuses commands beyond the queue's limit while the disk hangs, and takes them again afterwards", async () => {
    const { service, disk } = await openHost({ service: { maxPendingCommands: 3 } });
    let release = (): void => undefined;
    disk.faults.sync = () =>
      new Promise((resolve) => {
        release = resolve;
      });
    const taken = ["a", "b", "c"].map((key) => service.compareAndSet(key, ABSENT, bytes("x")));
    expect((await rejection(service.compareAndSet("d", ABSENT, bytes("x")))).code).toBe("QUEUE_FULL");
    await settle();
    disk.faults = {};
    release();
    for (const call of taken) granted(await call);
    granted(await service.compareAndSet("d", ABSENT, bytes("x")));
    expect((await service.list()).found).toHaveLength(4);
  });

  it("H8: checkpoints amid other commands hold exactly what was logged before them", async () => {
    let host = await openHost(OPTIONS);
    const lanes = Array.from({ length: 5 }, (_, lane) => `lane${lane}`);
    await Promise.all(
      lanes.map(async (key, lane) => {
        let expected: Uint8Array | typeof ABSENT = ABSENT;
        for (let i = 0; i < 40; i++) {
          const value = bytes(`${i}`);
          granted(await host.service.compareAndSet(key, expected, value));
          expected = value;
          for (let turn = 0; turn < (i * lane) % 7; turn++) await Promise.resolve();
        }
      }),
    );
    const { at } = await host.service.list();
    expect(host.log.status().checkpointPosition).toBeGreaterThan(100n);
    host = await restart(host, OPTIONS);
    for (const key of lanes) {
      expect(Buffer.from((await host.service.get(key)).found?.value ?? []).toString()).toBe("39");
    }
    // The opening is one more revision: none was lost and none was applied twice.
    expect(BigInt(host.service.status().at.split("@")[0] ?? "")).toBe(BigInt(at.split("@")[0] ?? "") + 1n);
  });

  it("closing waits for what was taken and refuses what comes later", async () => {
    const { service } = await openHost();
    const taken = service.compareAndSet("k", ABSENT, bytes("x"));
    const closed = service.close();
    expect((await rejection(service.get("k"))).code).toBe("CLOSED");
    granted(await taken);
    await closed;
    await service.close();
  });

  it("H3: records that make no sense refuse the opening with file and offset, although their checksums are good", async () => {
    const wrong: readonly (readonly [Uint8Array, string])[] = [
      [bytes("garbage"), "a command of format version 103"],
      [
        encodeEntry({ atMs: 0, wallMs: 1, command: { kind: "release", lease: "l", owner: "nobody", epoch: 1n } }),
        "its release changes nothing",
      ],
      [
        encodeEntry({ atMs: 0, wallMs: 1, command: { kind: "open", historyId: "00", raiseBy: -5n } }),
        "counters never fall back",
      ],
      [
        encodeEntry({ atMs: 0, wallMs: 1, command: { kind: "join", member: "m", epoch: 2n } }).subarray(0, -1),
        "the bytes end inside a field",
      ],
    ];
    for (const [record, message] of wrong) {
      const host = await openHost();
      granted(await host.service.join("other", 1n));
      await host.service.close();
      await host.log.append(record);
      await host.log.close();
      const log = await openLog(host.disk);
      const error = await rejection(LogBackedCoordinationService.open(log));
      expect(error).toMatchObject({ code: "DAMAGED", place: { file: "/data/log/segment-00000000000000000000.log" } });
      expect(error.place?.offsetBytes).toBeGreaterThan(100);
      expect(error.message).toContain(message);
    }
    const backwards = await openHost();
    await backwards.clock.advance(1000);
    granted(await backwards.service.join("m", 1n));
    await backwards.log.append(encodeEntry({ atMs: 5, wallMs: 1, command: { kind: "join", member: "m", epoch: 2n } }));
    await backwards.log.close();
    const error = await rejection(LogBackedCoordinationService.open(await openLog(backwards.disk)));
    expect(error.message).toContain("it was decided at 5 ms, before the record ahead of it (1000 ms)");
  });

  it("H3: a checkpoint that makes no sense refuses the opening, although its checksum is good", async () => {
    const log = await openLog(new Disk());
    await log.append(bytes("x"));
    await log.writeCheckpoint(1n, bytes("no state"));
    const error = await rejection(LogBackedCoordinationService.open(log));
    expect(error).toMatchObject({ code: "DAMAGED", place: { file: log.checkpoint?.place.file } });
    expect(error.message).toContain("the state makes no sense");
  });

  it("an aborted opening ends while it reads, and while it waits for the disk; another one succeeds", async () => {
    const host = await openHost();
    for (const key of ["a", "b", "c"]) granted(await host.service.compareAndSet(key, ABSENT, bytes("x")));
    await host.service.close();
    await host.log.close();
    const log = await openLog(host.disk);
    const appended = log.status().end;
    const early = new AbortController();
    host.disk.faults.before = (call) => {
      if (call === "read") early.abort(new Error("no longer wanted"));
    };
    const refusal = await rejection(LogBackedCoordinationService.open(log, { signal: early.signal }));
    expect(refusal).toMatchObject({ code: "ABORTED", cause: new Error("no longer wanted") });
    expect(refusal.message).toContain("nothing was opened");
    expect(log.status().end).toBe(appended);
    host.disk.faults = {};
    const abort = new AbortController();
    let release = (): void => undefined;
    host.disk.faults.sync = () => {
      abort.abort();
      return new Promise((resolve) => {
        release = resolve;
      });
    };
    expect((await rejection(LogBackedCoordinationService.open(log, { signal: abort.signal }))).code).toBe("ABORTED");
    host.disk.faults = {};
    release();
    await log.close();
    const again = await restart(host);
    expect((await again.service.list()).found).toHaveLength(3);
  });

  it("notices that the log has another writer", async () => {
    const { service, log } = await openHost();
    await log.append(bytes("from elsewhere"));
    expect((await rejection(service.join("m", 1n))).message).toContain("the log has another writer");
  });
});
