import { KrabkaError, type OutgoingRecord, type TransportCapabilities } from "@krabka/core";
import { FakeCluster, FakeTransport, type FakeTransportOptions, type FaultAction, ManualClock } from "@krabka/testing";
import type { TransportHarness, TransportSubject } from "../src/conformance/index.js";

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

/** A program that writes in a transaction with bare requests. */
const startTransaction = async (cluster: FakeCluster, transactionalId: string, records: readonly OutgoingRecord[]) => {
  const send = <A extends Parameters<FakeCluster["send"]>[0]["api"]>(
    api: A,
    ask: Parameters<typeof cluster.send<A>>[0]["ask"],
    broker: number,
  ) => cluster.send<A>({ api, ask, broker, clientId: "another program" });
  const coordinator = () => cluster.coordinatorOf(transactionalId);
  const mint = async () => {
    for (;;) {
      const answer = await send("InitProducerId", { transactionalId, transactionTimeoutMs: 60_000 }, coordinator());
      if (answer.ok) return { producerId: answer.producerId, epoch: answer.epoch };
      await new Promise<void>((resolve) => cluster.clock.setTimer(1, resolve));
    }
  };
  const pair = await mint();
  const partitions = records.map(({ topic, partition = 0 }) => ({ topic, partition }));
  await send("AddPartitionsToTxn", { transactionalId, ...pair, partitions }, coordinator());
  for (const [index, record] of records.entries()) {
    const target = { topic: record.topic, partition: record.partition ?? 0 };
    const batch = {
      ...pair,
      records: [{ ...record, timestampMs: cluster.clock.wallMs() }],
      baseSequence: index,
      transactional: true,
    };
    const answer = await send("Produce", { ...target, transactionalId, batch }, cluster.leaderOf(target));
    if (!answer.ok) throw new Error(`Produce was refused with code ${answer.code}`);
  }
  return {
    end: async (result: "commit" | "abort") => {
      const answer = await send("EndTxn", { transactionalId, ...pair, commit: result === "commit" }, coordinator());
      if (!answer.ok) throw new KrabkaError("FENCED", `EndTxn was refused with code ${answer.code}`);
    },
  };
};
