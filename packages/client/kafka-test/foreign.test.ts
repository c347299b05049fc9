import { FencingToken, MemberId } from "@krabka/client";
import type { LeasePosition } from "@krabka/tooling-foreign-member";
import { describe, expect, inject, it } from "vitest";
import { committedValues } from "./committed-values.js";
import { LEASE_MS, SharedRole } from "./shared-role.js";
import { SuspendableClock } from "./trials/suspendable-clock.js";

const INIT_PRODUCER_ID = 22;
const ADD_PARTITIONS_TO_TXN = 24;
const END_TXN = 26;
const RENEWALS = 20;
/** Nobody waited for a lease or for a turn. The Java client has to start a producer in it. */
const AT_ONCE_MS = { krabka: 200, foreign: 1_000 };
const FENCED_IN_JAVA = /^(ProducerFencedException|InvalidProducerEpochException)$/;

const open = () => SharedRole.open(inject("kafkaBootstrap"));

/** A member that knows no terms has the offset of each lease record as term, since each has a pair of its own. */
const tokenOf = ({ producerId, epoch, offset }: LeasePosition) => FencingToken.of({ term: offset, producerId, epoch });

describe.each(["append", "transaction"] as const)(
  "beside a foreign member, with lease records as %s",
  (leaseRecords) => {
    it("members follow a holder whose epoch rises with each renewal, and succeed it within milliseconds of its release", async () => {
      await using shared = await open();
      const { role } = shared;
      const foreign = await shared.foreign("foreign", { renewMs: 150 });
      await foreign.next("leading");
      const first = shared.member(leaseRecords).acquire(role, MemberId.of("ours-1"));
      await shared.registered("ours-1");
      const second = shared.member(leaseRecords).acquire(role, MemberId.of("ours-2"));
      second.catch(() => undefined);
      const observer = shared.member(leaseRecords);

      let last = await foreign.next("renewed");
      for (let i = 1; i < RENEWALS; i++) {
        const renewed = await foreign.next("renewed");
        expect(renewed.producerId).toBe(last.producerId);
        expect(renewed.epoch).toBeGreaterThan(last.epoch);
        last = renewed;
      }
      await shared.hasSeen(tokenOf(last));
      expect(shared.proxy.requests(INIT_PRODUCER_ID)).toBe(0);
      for await (const { leader } of observer.observe(role)) {
        expect(leader).toMatchObject({ member: "foreign", token: { producerId: last.producerId } });
        break;
      }
      // Its last commit raised the epoch once more, beyond what its record could say.
      const status = await observer.describe(role);
      expect(status.pair?.producerId).toBe(last.producerId);
      expect(status.pair?.epoch).toBeGreaterThan(last.epoch);

      const resigned = await foreign.resign();
      const resignedAtMs = performance.now();
      const leadership = await first;
      const tookMs = performance.now() - resignedAtMs;
      console.log(`${leaseRecords}: ours led ${tookMs.toFixed(1)} ms after the foreign member was told of its release`);
      expect(resigned.event).toBe("resigned");
      expect(tookMs).toBeLessThan(AT_ONCE_MS.krabka);
      expect(shared.proxy.requests(INIT_PRODUCER_ID)).toBe(1);
      await leadership.write({ topic: shared.dataTopic, value: "ours" });

      expect(await foreign.staleWrite(shared.dataTopic, "stale")).toMatchObject({
        event: "refused",
        exception: expect.stringMatching(FENCED_IN_JAVA),
      });
      expect(leadership.isLeader).toBe(true);
      expect(await leadership.verify()).toBe(true);
      await leadership.write({ topic: shared.dataTopic, value: "still ours" });
      expect(await committedValues(shared.kafka, shared.dataTopic)).toEqual(["ours", "still ours"]);
      await shared.hasSeen(leadership.token);
      await shared.expectOrdered();
      expect(shared.tokens.length).toBeGreaterThan(RENEWALS / 2);
    });

    it("a foreign holder that hangs is succeeded after its lease, and the broker refuses what it writes later", async () => {
      await using shared = await open();
      const foreign = await shared.foreign("foreign");
      await foreign.next("leading");
      const won = shared.member(leaseRecords).acquire(shared.role, MemberId.of("ours"));
      await shared.registered("ours");
      expect(await foreign.write(shared.dataTopic, "before")).toMatchObject({ event: "written" });
      await foreign.next("renewed");
      await foreign.silence();
      const silentAtMs = performance.now();
      const leadership = await won;
      const tookMs = performance.now() - silentAtMs;
      console.log(`${leaseRecords}: ours led ${tookMs.toFixed(0)} ms after the foreign member fell silent`);
      expect(tookMs).toBeGreaterThan(LEASE_MS / 2);
      expect(tookMs).toBeLessThan(LEASE_MS + 1_000);
      const refused = await foreign.staleWrite(shared.dataTopic, "stale");
      expect(refused).toMatchObject({ event: "refused", exception: expect.stringMatching(FENCED_IN_JAVA) });
      await leadership.write({ topic: shared.dataTopic, value: "after" });
      expect(await committedValues(shared.kafka, shared.dataTopic)).toEqual(["before", "after"]);
      await shared.expectOrdered();
    });

    it("a foreign holder that was killed is succeeded after its lease", async () => {
      await using shared = await open();
      const foreign = await shared.foreign("foreign");
      await foreign.next("leading");
      const won = shared.member(leaseRecords).acquire(shared.role, MemberId.of("ours"));
      await shared.registered("ours");
      await foreign.next("renewed");
      await foreign.kill();
      const killedAtMs = performance.now();
      const leadership = await won;
      const tookMs = performance.now() - killedAtMs;
      console.log(`${leaseRecords}: ours led ${tookMs.toFixed(0)} ms after the foreign member was killed`);
      expect(tookMs).toBeGreaterThan(LEASE_MS / 2);
      expect(tookMs).toBeLessThan(LEASE_MS + 1_000);
      await shared.hasSeen(leadership.token);
      await shared.expectOrdered();
    });

    it("a foreign member succeeds after a release or a transfer, in turn, and all leaders have rising terms", async () => {
      await using shared = await open();
      const { role } = shared;
      const foreign = await shared.foreign("foreign");
      await foreign.next("leading");
      const handovers: number[] = [];
      for (let round = 1; round <= 3; round++) {
        const won = shared.member(leaseRecords).acquire(role, MemberId.of(`ours-${round}`));
        await shared.registered(`ours-${round}`);
        await foreign.resign();
        const ours = await won;
        await ours.write({ topic: shared.dataTopic, value: `ours ${round}` });
        const { token } = ours;
        foreign.compete();
        await shared.registered("foreign");
        const leftAtMs = performance.now();
        if (round === 2) await ours.transferTo(MemberId.of("foreign"));
        else await ours.resign();
        const leading = await foreign.next("leading");
        handovers.push(performance.now() - leftAtMs);
        expect(tokenOf(leading).compareTo(token)).toBe(1);
        await expect(ours.write({ topic: shared.dataTopic, value: "stale" })).rejects.toMatchObject({
          code: "NOT_LEADER",
        });
        expect(await foreign.write(shared.dataTopic, `foreign ${round}`)).toMatchObject({ event: "written" });
        await shared.hasSeen(tokenOf(leading));
      }
      console.log(`${leaseRecords}: the foreign member led ${handovers.map((ms) => ms.toFixed(0))} ms after ours left`);
      expect(Math.max(...handovers)).toBeLessThan(AT_ONCE_MS.foreign);
      const values = await committedValues(shared.kafka, shared.dataTopic);
      expect(values).toEqual([1, 2, 3].flatMap((round) => [`ours ${round}`, `foreign ${round}`]));
      await shared.expectOrdered();
    });

    // Whether a commit was executed whose answer was lost is not known from a later refusal.
    it.each([
      ["before it commits", ADD_PARTITIONS_TO_TXN, /^FENCED$/],
      ["while it commits", END_TXN, /^(FENCED|UNKNOWN_OUTCOME)$/],
    ] as const)(
      "a foreign member succeeds a member that is stopped in a write, %s, and nothing of it becomes visible",
      async (_when, apiKey, code) => {
        await using shared = await open();
        const clock = new SuspendableClock();
        const ours = await shared.member(leaseRecords, { clock }).acquire(shared.role, MemberId.of("ours"));
        const foreign = await shared.foreign("foreign");
        await foreign.next("registered");
        await ours.renew();
        const commit = shared.proxy.inject({ apiKey, times: Number.POSITIVE_INFINITY, action: { hold: true } });
        const write = ours.write({ topic: shared.dataTopic, value: "late" }).catch((error: unknown) => error);
        await commit.hit;
        clock.suspend();
        const leading = await foreign.next("leading");
        await foreign.write(shared.dataTopic, "foreign");
        commit.release();
        clock.resume();
        expect(await write).toMatchObject({ code: expect.stringMatching(code) });
        await expect(ours.write({ topic: shared.dataTopic, value: "later" })).rejects.toMatchObject({
          code: expect.stringMatching(/^(FENCED|NOT_LEADER)$/),
        });
        expect(ours.isLeader).toBe(false);
        expect(ours.loss?.reason).toMatch(/^(fenced|evicted)$/);
        expect(await foreign.write(shared.dataTopic, "still foreign")).toMatchObject({ event: "written" });
        expect(await committedValues(shared.kafka, shared.dataTopic)).toEqual(["foreign", "still foreign"]);
        await shared.hasSeen(tokenOf(leading));
        await shared.expectOrdered();
      },
    );

    it("a strict reader decodes all that a member ever writes, kind by kind", async () => {
      await using shared = await open();
      const { role } = shared;
      const reader = await shared.foreign();
      const attributes = { address: "10.0.0.1:80" };
      await shared.appendForeignLease("gone");
      const first = await shared.member(leaseRecords).acquire(role, MemberId.of("a"), { attributes });
      const second = shared.member(leaseRecords).acquire(role, MemberId.of("b"), { attributes });
      await shared.registered("b");
      await first.renew();
      await first.write({ topic: shared.dataTopic, value: "x" });
      const giveUp = new AbortController();
      const third = shared.member(leaseRecords).acquire(role, MemberId.of("c"), { signal: giveUp.signal });
      third.catch(() => undefined);
      await shared.registered("c");
      giveUp.abort();
      await expect(third).rejects.toMatchObject({ code: "ABORTED" });
      await first.transferTo(MemberId.of("b"));
      await (await second).resign();
      // The stranger's lease and registration; a, b and c; with appends, a's second one shuts the stranger's id out.
      const retired = leaseRecords === "append" ? 1 : 0;
      const report = await reader.report();
      expect(report).toMatchObject({ registrations: 4 + retired, leaseTombstones: 0 });
      // Of the stranger, which missed its turn; of c, which gave up; of a and b, with their goodbyes.
      expect(report.registrationTombstones).toBe(4);
      // The stranger's; grant, renewal, transfer; grant, release. The clock may have added renewals.
      expect(report.leases).toBeGreaterThanOrEqual(6);
    });
  },
);

it("the coordinator's answer after a foreign holder's own commit is that after a takeover, so no older token is authoritative", async () => {
  await using shared = await open();
  const { role } = shared;
  const observer = shared.member("append");
  const foreign = await shared.foreign("foreign", { renewMs: 1_000 });
  const granted = await foreign.next("leading");
  const committed = async () => {
    for (;;) {
      const status = await observer.describe(role);
      // Until its markers are written.
      if (status.transactionState !== "PrepareCommit") return status;
    }
  };
  const held = await committed();
  expect(held.transactionState).toBe("CompleteCommit");
  expect(held.pair).toEqual({ producerId: granted.producerId, epoch: granted.epoch + 1 });
  expect(held.isAuthoritative(tokenOf(granted))).toBe(false);
  await foreign.resign();

  const ours = await shared.member("append").acquire(role, MemberId.of("ours"));
  const { token } = ours;
  // Somebody else's ordinary transactional producer, which the fence takes for a leader.
  const stranger = shared.kafka.producer({ transactionalId: role, idempotent: true, maxInFlightRequests: 1 });
  await stranger.connect();
  const transaction = await stranger.transaction();
  await transaction.send({ topic: shared.dataTopic, messages: [{ value: "stranger's" }] });
  await transaction.commit();
  const deposed = await committed();
  await stranger.disconnect();
  expect(deposed.transactionState).toBe("CompleteCommit");
  expect(deposed.pair).toEqual({ producerId: token.producerId, epoch: token.epoch + 1 });
  expect(deposed.isAuthoritative(token)).toBe(false);
  await expect(ours.write({ topic: shared.dataTopic, value: "never" })).rejects.toMatchObject({ code: "FENCED" });
});
