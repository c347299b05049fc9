import type { CoordinationService, LogBackedCoordinationService } from "@krabka/local";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { bytes, runs } from "./log-script.js";
import { type Host, openHost, restart } from "./service-script.js";

type Operation =
  | { readonly op: "put"; readonly key: string; readonly value: string; readonly stale: boolean }
  | { readonly op: "delete"; readonly key: string; readonly stale: boolean }
  | {
      readonly op: "acquire" | "renew" | "release";
      readonly key: string;
      readonly owner: string;
      readonly stale: boolean;
    }
  | { readonly op: "join" | "heartbeat" | "leave" | "declareDead"; readonly key: string; readonly ahead: number }
  | { readonly op: "advance"; readonly ms: number }
  | { readonly op: "restart" | "kill" };

const TTL_MS = 1000;
const names = fc.constantFrom("a", "b", "c");

const operations: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ op: fc.constant("put" as const), key: names, value: fc.constantFrom("x", "y"), stale: fc.boolean() }),
  fc.record({ op: fc.constant("delete" as const), key: names, stale: fc.boolean() }),
  fc.record({
    op: fc.constantFrom("acquire" as const, "renew" as const, "release" as const),
    key: names,
    owner: fc.constantFrom("o", "p"),
    stale: fc.boolean(),
  }),
  fc.record({
    op: fc.constantFrom("join" as const, "heartbeat" as const, "leave" as const, "declareDead" as const),
    key: names,
    ahead: fc.integer({ min: -1, max: 1 }),
  }),
  fc.record({ op: fc.constant("advance" as const), ms: fc.integer({ min: 1, max: 1500 }) }),
  fc.record({ op: fc.constantFrom("restart" as const, "kill" as const) }),
);

/** The same authority in the plainest form: three maps and a clock, no log. */
class Model {
  readonly values = new Map<string, { value: string; version: string }>();
  readonly leases = new Map<string, { owner: string; epoch: bigint; until: number }>();
  readonly members = new Map<string, { status: string; epoch: bigint }>();
  readonly versions = new Set<string>();
  highest = 0n;
  now = 0;

  lease(key: string): { owner: string; epoch: bigint; until: number } | undefined {
    const lease = this.leases.get(key);
    return lease !== undefined && this.now < lease.until ? lease : undefined;
  }
}

const run = async (service: CoordinationService, model: Model, operation: Operation): Promise<void> => {
  switch (operation.op) {
    case "put":
    case "delete": {
      const known = model.values.get(operation.key);
      const expected = operation.stale ? "old" : known?.value;
      const replacement = operation.op === "put" ? operation.value : undefined;
      const from = expected === undefined ? "absent" : bytes(expected);
      if (replacement === undefined && from === "absent") return;
      const conditions = { expectedVersion: operation.stale ? undefined : known?.version };
      const result =
        replacement === undefined
          ? await service.delete(operation.key, from as Uint8Array, conditions)
          : await service.compareAndSet(operation.key, from, bytes(replacement), conditions);
      expect(result.success).toBe(!operation.stale);
      if (!result.success) return;
      if (replacement === undefined || result.version === undefined) {
        model.values.delete(operation.key);
        return;
      }
      expect(model.versions).not.toContain(result.version);
      model.versions.add(result.version);
      model.values.set(operation.key, { value: replacement, version: result.version });
      return;
    }
    case "acquire": {
      const held = model.lease(operation.key);
      const result = await service.acquireLease(operation.key, operation.owner, TTL_MS);
      expect(result.success).toBe(held === undefined);
      if (!result.success) return;
      const { epoch } = result.lease;
      expect(epoch).toBeGreaterThan(model.highest);
      model.highest = epoch;
      model.leases.set(operation.key, { owner: operation.owner, epoch, until: model.now + TTL_MS });
      return;
    }
    case "renew":
    case "release": {
      const held = model.lease(operation.key);
      const epoch = (held?.epoch ?? 7n) + (operation.stale ? 1n : 0n);
      const { key, owner } = operation;
      const isRenewal = operation.op === "renew";
      const result = await (isRenewal
        ? service.renewLease(key, owner, epoch, TTL_MS)
        : service.releaseLease(key, owner, epoch));
      expect(result.success).toBe(held !== undefined && held.owner === owner && !operation.stale);
      if (!result.success || held === undefined) return;
      if (isRenewal) held.until = model.now + TTL_MS;
      else model.leases.delete(key);
      return;
    }
    case "join":
    case "heartbeat":
    case "leave":
    case "declareDead": {
      const known = model.members.get(operation.key);
      const epoch = (known?.epoch ?? 1n) + BigInt(operation.ahead);
      const result = await service[operation.op](operation.key, epoch);
      const allowed = allows(known, operation.op, epoch);
      expect(result.success, `${operation.op} at ${epoch}`).toBe(allowed !== undefined);
      if (allowed !== undefined) model.members.set(operation.key, { status: allowed, epoch });
      else if (!result.success) expect(result.epochToBeat).toBe(known?.epoch ?? 0n);
    }
  }
};

/** The status that an event leads to, or undefined if it is refused. */
const allows = (
  known: { readonly status: string; readonly epoch: bigint } | undefined,
  op: "join" | "heartbeat" | "leave" | "declareDead",
  epoch: bigint,
): string | undefined => {
  if (op === "join") {
    if (epoch > (known?.epoch ?? 0n)) return "JOINING";
    return epoch === known?.epoch && known.status === "JOINING" ? "JOINING" : undefined;
  }
  if (known === undefined || epoch !== known.epoch) return undefined;
  const wanted = { heartbeat: "ALIVE", leave: "LEFT", declareDead: "DEAD" }[op];
  if (known.status === wanted) return wanted;
  return known.status === "DEAD" || known.status === "LEFT" ? undefined : wanted;
};

const expectSame = async (service: LogBackedCoordinationService, model: Model): Promise<void> => {
  const { found } = await service.list();
  expect(found).toEqual(
    [...model.values].map(([key, { version }]) => ({ key, version })).sort((a, b) => (a.key < b.key ? -1 : 1)),
  );
  for (const [key, { value }] of model.values) {
    expect(Buffer.from((await service.get(key)).found?.value ?? []).toString()).toBe(value);
  }
  for (const key of ["a", "b", "c"]) {
    const lease = (await service.lease(key)).found;
    const held = model.lease(key);
    expect(lease && { owner: lease.owner, epoch: lease.epoch, left: lease.remainingMs }).toEqual(
      held && { owner: held.owner, epoch: held.epoch, left: held.until - model.now },
    );
  }
  const members = (await service.members()).found.map(
    ({ memberId, status, epoch }) => [memberId, { status, epoch }] as const,
  );
  expect(new Map(members)).toEqual(model.members);
};

describe("The service and a plain model of it", () => {
  it("agree after any operations, crashes and reopenings", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(operations, { maxLength: 60 }), async (script) => {
        // Silence is tested on its own; here members change by what they are told alone.
        const silence = { suspectAfterMs: 10 ** 9, deadAfterMs: 10 ** 9 };
        const options = { service: { ...silence, checkpointAfterBytes: 300 }, log: { segmentBytes: 400 } };
        let host: Host = await openHost(options);
        const model = new Model();
        for (const operation of script) {
          if (operation.op === "advance") {
            await host.clock.advance(operation.ms);
            model.now += operation.ms;
          } else if (operation.op === "restart") {
            await host.service.close();
            await host.log.close();
            host = await openHost({ ...options, disk: host.disk, clock: host.clock });
          } else if (operation.op === "kill") {
            host = await restart(host, { ...options, clock: host.clock });
          } else {
            await run(host.service, model, operation);
          }
        }
        await expectSame(host.service, model);
        host = await restart(host, { ...options, clock: host.clock });
        await expectSame(host.service, model);
      }),
      { numRuns: runs(150) },
    );
  }, 600_000);
});
