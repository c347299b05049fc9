import type { OutgoingRecord, TransportCapabilities } from "@krabka/core";
import { FakeCluster, FakeTransport, type FakeTransportOptions, type FaultAction, ManualClock } from "@krabka/testing";
import type { TransportHarness, TransportSubject } from "../src/conformance/index.js";
import { RawClient } from "./raw-client.js";

const FAULTY = "faulty";

interface Variant {
  readonly name: string;
  readonly options: Pick<FakeTransportOptions, "leaseRecords" | "without">;
  readonly unsupported: { readonly [C in keyof TransportCapabilities]?: string };
}

/** The fake cluster, with a delay before the markers and time that runs as fast as the program allows. */
export const fakeSubject = ({ name, options, unsupported }: Variant): TransportSubject => ({
  name,
  missing: {},
  unsupported,
  start: async (): Promise<TransportHarness> => {
    const clock = new ManualClock();
    const stop = clock.run();
    const cluster = new FakeCluster({ clock, markerDelayMs: 2 });
    return {
      clock,
      patienceMs: 10_000,
      transport: ({ topic, faulty }) =>
        new FakeTransport({ cluster, topic, clientId: faulty ? FAULTY : "spared", ...options }),
      createTopic: async (topic, partitions) => cluster.createTopic(topic, { partitions }),
      readCommitted: async (target) => cluster.read(target),
      appendRaw: async (target, records) => cluster.append(target, records),
      describeRole: async (role) => {
        const answer = cluster.describe(role);
        return answer.ok ? { producerId: answer.producerId, epoch: answer.epoch } : undefined;
      },
      injectFault: async ({ api, effect }) => {
        const action: FaultAction = { kind: effect };
        const fault = cluster.faults.inject({ api, action, clientId: FAULTY });
        return { hit: fault.hit, release: async () => fault.release() };
      },
      cutConnections: async () => cluster.cutConnections(FAULTY),
      startTransaction: (id, records) => startTransaction(cluster, id, records),
      deleteRecords: async (target) => {
        cluster.log(target).deleteRecords(-1n);
        return cluster.log(target).startOffset;
      },
      moveLeader: async (target) => cluster.moveLeader(target, (cluster.leaderOf(target) + 1) % 3),
      moveCoordinator: async (role) => cluster.moveCoordinator(role, (cluster.coordinatorOf(role) + 1) % 3),
      forgetRole: async (role) => cluster.expireTransactionalId(role),
      close: async () => {
        cluster.close();
        stop();
      },
    };
  },
});

const startTransaction = async (cluster: FakeCluster, transactionalId: string, records: readonly OutgoingRecord[]) => {
  const client = new RawClient(cluster, transactionalId);
  await client.mint();
  for (const [index, { topic, partition = 0, key, value, headers }] of records.entries()) {
    const target = { topic, partition };
    await client.add(target);
    const record = { key, value, headers };
    await client.produceRecords(target, index, true, [record]);
  }
  return {
    end: async (result: "commit" | "abort") => {
      const code = await client.end(result === "commit");
      if (code !== 0) throw new Error(`EndTxn was refused with code ${code}`);
    },
  };
};
