import { Deadline, type ReadRecord, type TopicPartition } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import type { HarnessPower, TransportHarness, TransportSubject } from "@krabka/testing/conformance";
import { decodeRecord, encodeRecord } from "../../src/embedded/broker/record-bytes.js";
import type { BrokerAnswer, BrokerRequest } from "../../src/embedded/broker/request.js";
import { BrokerClient } from "../../src/embedded/link/broker-client.js";
import { SocketConnector } from "../../src/embedded/socket/socket-connector.js";
import { systemClock } from "../../src/system-clock.js";
import { FaultProxy } from "./fault-proxy.js";
import { temporary } from "./temporary.js";

const PATIENCE_MS = 5000;

const NEVER: { readonly [P in HarnessPower]?: string } = {
  startTransaction: "a transaction is one request, so none is ever open",
  moveLeader: "there is one broker",
  moveCoordinator: "there is one broker",
  forgetRole: "a role is never forgotten",
  lateFence: "a mint shuts older pairs out of every partition at once",
};

const IN_PROCESS: { readonly [P in HarnessPower]?: string } = {
  ...NEVER,
  loseAnswers: "within one process no answer gets lost",
  holdRequests: "within one process no request is under way",
  cutConnections: "within one process there is no connection",
};

/** Speaks to the owner past every transport: the truth that the suite compares with. */
class Witness {
  readonly #client: BrokerClient;

  constructor(socketPath: string) {
    this.#client = new BrokerClient(new SocketConnector(socketPath), systemClock);
  }

  async ask(request: BrokerRequest): Promise<BrokerAnswer> {
    const answer = await this.#client.send(request).answer;
    if (answer.status === "refused") throw new Error(answer.message);
    return answer;
  }

  async read(target: TopicPartition): Promise<readonly ReadRecord[]> {
    const records: ReadRecord[] = [];
    for (let from: bigint | "earliest" = "earliest"; ; ) {
      const result = await this.#client.query({ kind: "fetch", target, from, waits: false }, this.#limit());
      if (result.kind !== "slice") throw new Error(`a fetch gave ${result.kind}`);
      records.push(...result.slice.records.map(({ offset, bytes }) => ({ ...decodeRecord(bytes), offset })));
      if (result.slice.next >= result.end) return records;
      from = result.slice.next;
    }
  }

  async pairOf(role: string) {
    const result = await this.#client.query({ kind: "describe", role }, this.#limit());
    return result.kind === "pair" ? result.pair : undefined;
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  #limit(): Deadline {
    return new Deadline(systemClock, undefined, PATIENCE_MS);
  }
}

/** The owner with transports in its own process, or over its socket through a proxy that can misbehave. */
export const embeddedSubject = (way: "in-process" | "socket"): TransportSubject => ({
  name: way === "socket" ? "The embedded transport over a socket" : "The embedded transport in the owner's process",
  missing: way === "socket" ? NEVER : IN_PROCESS,
  unsupported: {},
  start: async (): Promise<TransportHarness> => {
    const place = await temporary();
    const proxyPath = `${place.socketPath}.p`;
    const owner = await EmbeddedTransport.open({
      directory: place.directory,
      serve: { socketPath: place.socketPath },
    });
    const proxy = await FaultProxy.listen(proxyPath, place.socketPath);
    const witness = new Witness(place.socketPath);
    return {
      clock: systemClock,
      patienceMs: PATIENCE_MS,
      transport: ({ topic, faulty }) => {
        const options = { topic: topic.name, partitions: topic.partitions };
        if (way === "in-process") return owner.sibling(options);
        return EmbeddedTransport.connect({ ...options, socketPath: faulty ? proxyPath : place.socketPath });
      },
      createTopic: async (topic, partitions) => {
        await witness.ask({ kind: "create-topic", topic, partitions, compacted: false });
      },
      readCommitted: (target) => witness.read(target),
      appendRaw: async (target, records) => {
        const timestampMs = systemClock.wallMs();
        const encoded = records.map((record) => encodeRecord({ ...record, timestampMs }));
        const answer = await witness.ask({ kind: "append-unfenced", batch: { ...target, records: encoded } });
        return answer.status === "written" ? (answer.bases[0] ?? -1n) : -1n;
      },
      describeRole: (role) => witness.pairOf(role),
      injectFault: async (fault) => proxy.inject(fault),
      cutConnections: async () => proxy.cut(),
      startTransaction: () => Promise.reject(new Error("missing")),
      deleteRecords: async (target) => {
        const answer = await witness.ask({ kind: "delete-records", target });
        return answer.status === "written" ? (answer.bases[0] ?? -1n) : -1n;
      },
      moveLeader: () => Promise.reject(new Error("missing")),
      moveCoordinator: () => Promise.reject(new Error("missing")),
      forgetRole: () => Promise.reject(new Error("missing")),
      close: async () => {
        await witness.close();
        proxy.close();
        await owner.close();
        await place.remove();
      },
    };
  },
});
