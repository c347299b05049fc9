import { randomUUID } from "node:crypto";
import { DEFAULT_PARTITIONS, encodeUtf8, partitionForRole, type RawRecord, Role } from "@krabka/core";
import { startKafka } from "@krabka/tooling-kafka";
import kafkajs, { type KafkaConfig } from "kafkajs";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { ClusterMap } from "../src/cluster-map.js";
import { DEFAULT_TOPIC, KafkaJsTransport } from "../src/index.js";
import { openWire } from "../src/kafkajs-internals.js";
import { describeRole, mint } from "../src/mint.js";
import { produceAll } from "../src/produce.js";
import { systemClock } from "../src/system-clock.js";
import { abortTransaction, commitTransaction } from "../src/transaction.js";
import { ADD_PARTITIONS_TO_TXN } from "../src/wire/api.js";
import { decodeAddPartitionsToTxn, encodeAddPartitionsToTxn } from "../src/wire/transaction-requests.js";
import { planRounds, Sequences } from "../src/write-plan.js";
import { requireWriteRight } from "../src/write-right.js";

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, Kafka, logLevel, ResourcePatternTypes } = kafkajs;
const TIMEOUT_MS = 60_000;
const record: RawRecord = { key: encodeUtf8("k"), value: null, headers: [] };

let transport: KafkaJsTransport;
let map: ClusterMap;

const deadline = () => map.deadline({ timeoutMs: 20_000 });
const roleNamed = (what: string): Role => Role.of(`${what}-${randomUUID()}`);
const view = (role: Role) => describeRole(map, role, deadline());
const ask = (role: Role) => requireWriteRight(map, role, deadline());
const targetOf = (role: Role) => ({ topic: DEFAULT_TOPIC, partition: partitionForRole(role, DEFAULT_PARTITIONS) });

const opened = async (role: Role) => {
  for (;;) {
    try {
      return await transport.openSession(role, {
        transactionTimeoutMs: TIMEOUT_MS,
        mayMint: () => true,
        timeoutMs: 20_000,
      });
    } catch (error) {
      if ((error as { code?: string }).code !== "BUSY") throw error;
    }
  }
};

beforeAll(async () => {
  const kafka = new Kafka({ brokers: inject("kafkaBootstrap").split(","), logLevel: logLevel.NOTHING });
  transport = new KafkaJsTransport({ kafka });
  map = new ClusterMap(openWire(kafka, 10_000), systemClock, 10_000);
  await transport.prepare({ timeoutMs: 30_000 });
});
afterAll(() => transport?.close());

describe("asking for the right to write for a role", () => {
  it("creates no id that the coordinator did not know", async () => {
    const role = roleNamed("absent");
    await ask(role);
    expect((await view(role)).pair).toBeUndefined();
    expect((await opened(role)).pair.epoch).toBe(0);
  });

  it("changes nothing of a role that is idle, in the state that its last transaction left", async () => {
    const role = roleNamed("idle");
    const session = await opened(role);
    for (const records of [[], [record]]) {
      await session.commit(records.map((one) => ({ ...targetOf(role), ...one })));
      // The markers of a commit follow its acknowledgement.
      await expect.poll(async () => (await view(role)).state).not.toBe("PrepareCommit");
      const before = await view(role);
      await ask(role);
      expect(await view(role)).toEqual(before);
      expect(before.pair).toEqual(session.pair);
    }
    expect(await session.append(targetOf(role), [record])).toMatchObject({ status: "committed" });
  });

  it.each([
    ["committed", commitTransaction],
    ["aborted", abortTransaction],
  ] as const)("leaves a transaction alone that is open, and is then %s", async (_, end) => {
    const role = roleNamed("open");
    const pair = await mint(map, role, TIMEOUT_MS, () => true, deadline());
    const authority = { map, role, pair };
    const { topic, partition } = targetOf(role);
    const nodeId = await map.coordinatorOf(role, deadline());
    const request = {
      api: ADD_PARTITIONS_TO_TXN,
      encode: () => encodeAddPartitionsToTxn(role, pair, [{ topic, partitions: [partition] }]),
    };
    const [added] = decodeAddPartitionsToTxn(await map.ask(nodeId, "write", request, deadline()));
    expect(added?.code).toBe(0);
    await ask(role);
    const placed = [{ target: { topic, partition }, record: { ...record, timestampMs: Date.now() } }];
    const rounds = planRounds(placed, pair, new Sequences());
    const options = { transactionalId: role, repeatable: true, awaitsMarker: false };
    const { results } = await produceAll(map, rounds.flat(), options, deadline());
    expect(results).toMatchObject([{ status: "written" }]);
    await ask(role);
    expect(await view(role)).toEqual({ pair, state: "Ongoing" });
    expect(await end(authority, deadline())).toMatchObject(
      end === commitTransaction ? { outcome: { status: "committed" } } : { confirmed: "yes" },
    );
    expect((await view(role)).pair).toEqual(pair);
  });

  it("in whichever moment of 200 transactions disturbs none, and the pair stays", async () => {
    const role = roleNamed("busy");
    const session = await opened(role);
    const { pair } = session;
    let asked = 0;
    let running = true;
    const asking = (async () => {
      while (running) {
        await ask(role);
        asked += 1;
      }
    })();
    for (let run = 0; run < 200; run++) {
      expect(await session.commit([{ ...targetOf(role), ...record }])).toMatchObject({ status: "committed" });
    }
    running = false;
    await asking;
    expect(asked).toBeGreaterThan(200);
    expect(session.mustRemint).toBe(false);
    expect((await view(role)).pair).toEqual(pair);
  });
});

it("a user who may describe a role, but not write for it, is told so; with the right the same transport goes on", async () => {
  const users = { admin: "secret", looker: "secret" };
  await using cluster = await startKafka({ security: { users, superUsers: ["admin"] } });
  const as = (username: string): KafkaConfig => ({
    brokers: [cluster.secure?.saslPlaintext ?? ""],
    sasl: { mechanism: "plain", username, password: "secret" },
    logLevel: logLevel.NOTHING,
  });
  const admin = new Kafka(as("admin")).admin();
  await admin.connect();
  const role = Role.of("role-a");
  const allow = (operation: kafkajs.AclOperationTypes) =>
    admin.createAcls({
      acl: [
        {
          principal: "User:looker",
          host: "*",
          operation,
          permissionType: AclPermissionTypes.ALLOW,
          resourceType: AclResourceTypes.TRANSACTIONAL_ID,
          resourceName: role,
          resourcePatternType: ResourcePatternTypes.LITERAL,
        },
      ],
    });
  await allow(AclOperationTypes.DESCRIBE);
  const looker = new KafkaJsTransport({ kafka: as("looker") });
  const limit = { timeoutMs: 20_000 };
  expect((await looker.describe(role, limit)).pair).toBeUndefined();
  await expect(looker.describe(role, { ...limit, requireWrite: true })).rejects.toMatchObject({
    code: "UNAUTHORIZED",
    message: expect.stringContaining('the right Write on transactional id "role-a"'),
  });
  await allow(AclOperationTypes.WRITE);
  // A broker learns of an ACL a little later than the one that was told.
  await expect
    .poll(() => looker.describe(role, { ...limit, requireWrite: true }).catch(({ code }) => code), { timeout: 10_000 })
    .toMatchObject({ pair: undefined });
  await Promise.all([looker.close(), admin.disconnect()]);
});
