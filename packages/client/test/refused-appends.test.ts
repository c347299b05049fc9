import { type FakeCall, KafkaCode } from "@krabka/testing";
import { describe, expect, it } from "vitest";
import { Role } from "../src/index.js";
import { COORDINATION, end, LEASE_MS, type MemberOptions, ROLE, World } from "./world.js";

const AUTO: MemberOptions = { transport: { leaseRecords: "auto" } };
const record = (value: string) => ({ topic: "commands", key: "k", value, partition: 0 });

const CODES = [
  KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
  KafkaCode.INVALID_PRODUCER_EPOCH,
  KafkaCode.INVALID_PRODUCER_ID_MAPPING,
  KafkaCode.INVALID_TXN_STATE,
  KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
  KafkaCode.UNKNOWN_PRODUCER_ID,
] as const;

const isAppendUnderPair = ({ ask }: FakeCall): boolean => {
  const { batch } = ask as FakeCall<"Produce">["ask"];
  return batch.producerId >= 0n && !batch.transactional;
};

/** The brokers of a product that lets only transactions write under a transactional id's pair. */
const refuseAppends = (world: World, code: number) =>
  world.cluster.faults.inject({
    api: "Produce",
    times: 1_000_000,
    action: { kind: "error", code },
    matches: isAppendUnderPair,
  });

describe.each(CODES)("brokers that refuse fenced appends with code %i", (code) => {
  it("are found out by the grant, which goes in a transaction under the same pair", async () => {
    const world = new World();
    const refusal = refuseAppends(world, code);
    const a = world.member("a", AUTO);
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    expect(refusal.hits).toBe(1);
    expect(world.count("InitProducerId")).toBe(1);
    await world.settle(leadership.write(record("1")));
    await world.advance(3 * LEASE_MS);
    expect(leadership.isLeader).toBe(true);
    const other = Role.of("other");
    expect((await world.settle(a.client.acquire(other, a.id))).isLeader).toBe(true);
    expect(refusal.hits).toBe(1);
    await end(world, a);
  });

  it("do not keep members from succeeding one another", async () => {
    const world = new World();
    refuseAppends(world, code);
    const [a, b, c] = [world.member("a", AUTO), world.member("b", AUTO), world.member("c", AUTO)];
    const first = await world.settle(a.client.acquire(ROLE, a.id));
    const tokens = [first.token];
    const next = b.client.acquire(ROLE, b.id);
    await world.advance(50);
    const last = c.client.acquire(ROLE, c.id);
    await world.advance(50);
    await world.settle(first.resign());
    const second = await world.settle(next);
    tokens.push(second.token);
    b.transport.freeze();
    const third = await world.settle(last);
    tokens.push(third.token);
    expect([...tokens].sort((one, other) => one.compareTo(other))).toEqual(tokens);
    expect(new Set(tokens.map(String)).size).toBe(3);
    await world.settle(third.write(record("1")));
    b.transport.thaw();
    await end(world, a, b, c);
  });

  it("are reported where the members insist on appends", async () => {
    const world = new World();
    refuseAppends(world, code);
    const a = world.member("a");
    await expect(world.settle(a.client.acquire(ROLE, a.id))).rejects.toMatchObject({ code: "UNSUPPORTED" });
    await end(world, a);
  });

  it("also when the role's former id was to be shut out first", async () => {
    const world = new World();
    const a = world.member("a", AUTO);
    await world.settle((await world.settle(a.client.acquire(ROLE, a.id))).resign());
    world.cluster.expireTransactionalId(ROLE);
    refuseAppends(world, code);
    const b = world.member("b", AUTO);
    const leadership = await world.settle(b.client.acquire(ROLE, b.id));
    await world.settle(leadership.write(record("1")));
    expect(world.count("InitProducerId", "b")).toBe(1);
    await end(world, a, b);
  });
});

describe("a refusal of a fenced append", () => {
  it("in the middle of a term makes the next renewal a transaction, where the code says so", async () => {
    const world = new World();
    const a = world.member("a", AUTO);
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    refuseAppends(world, KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT);
    const { token } = leadership;
    await world.advance(2 * LEASE_MS);
    expect(leadership.isLeader).toBe(true);
    expect(leadership.token.equals(token)).toBe(true);
    await end(world, a);
  });

  it("as fenced in the middle of a term ends the term, whoever the coordinator names", async () => {
    const world = new World();
    const a = world.member("a", AUTO);
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    refuseAppends(world, KafkaCode.INVALID_PRODUCER_EPOCH);
    await world.advance(LEASE_MS);
    expect(leadership.loss?.reason).toBe("fenced");
    const again = await world.settle(a.client.acquire(ROLE, a.id));
    expect(again.isLeader).toBe(true);
    await end(world, a);
  });

  it("that is a rival's fence is not taken for a refusal of appends", async () => {
    const world = new World();
    const a = world.member("a", AUTO);
    // A stranger mints and writes right before the grant.
    world.cluster.faults.inject({
      api: "Produce",
      matches: isAppendUnderPair,
      action: {
        kind: "run",
        before: () => {
          const pair = world.cluster.mint(ROLE) as { producerId: bigint; epoch: number };
          const key = new Uint8Array([1]);
          const records = [{ key, value: null, headers: [], timestampMs: 0 }];
          world.cluster.log(COORDINATION).append({ ...pair, records, baseSequence: 0, transactional: false });
        },
      },
    });
    const leadership = await world.settle(a.client.acquire(ROLE, a.id));
    expect(world.count("InitProducerId")).toBe(2);
    expect(a.transport.capabilities.fencedAppend.supported).toBe(true);
    expect(world.count("AddPartitionsToTxn")).toBe(0);
    expect(leadership.isLeader).toBe(true);
    await end(world, a);
  });

  it("elsewhere while a grant is on its way does not spare that grant the question to the coordinator", async () => {
    const world = new World();
    const a = world.member("a", AUTO);
    const other = await world.settle(a.client.acquire(Role.of("other"), a.id));
    const granted = world.cluster.faults.inject({
      api: "Produce",
      matches: (call) =>
        isAppendUnderPair(call) && (call.ask as { partition: number }).partition === COORDINATION.partition,
      action: { kind: "hold-answer" },
    });
    const acquiring = a.client.acquire(ROLE, a.id);
    await Promise.all([granted.hit, world.advance(50)]);
    refuseAppends(world, KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT);
    await world.settle(other.renew());
    expect(a.transport.capabilities.fencedAppend.supported).toBe(false);
    world.cluster.mint(ROLE);
    granted.release();
    const leadership = await world.settle(acquiring);
    const status = await world.settle(a.client.describe(ROLE));
    expect(status.isAuthoritative(leadership.token)).toBe(true);
    await end(world, a);
  });
});
