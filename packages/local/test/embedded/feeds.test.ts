import { describe, expect, it } from "vitest";
import { ClientPort } from "../../src/embedded/broker/client-port.js";
import type { EmbeddedBroker } from "../../src/embedded/broker/embedded-broker.js";
import { decodeRecord } from "../../src/embedded/broker/record-bytes.js";
import type { PortListener, QueryResult } from "../../src/embedded/link/port.js";
import { Disk } from "../disk.js";
import { ask, openBroker, record } from "./broker-script.js";

const STATE = { topic: "state", partition: 0 };
/** So large that a replay takes several pushes. */
const VALUE = "x".repeat(5000);
const LIVE = Array.from({ length: 40 }, (_, index) => `live${index}`);

/** Takes a push at a time, and none after so many replays. */
class Reader implements PortListener {
  readonly keys: string[] = [];
  readonly results: QueryResult[] = [];
  resets = 0;
  room = 0;

  get congested(): boolean {
    return this.room === 0 || this.resets > 3;
  }

  onRecords(_feed: number, reset: boolean, slice: Parameters<PortListener["onRecords"]>[2]): void {
    this.room -= 1;
    if (reset) {
      this.resets += 1;
      this.keys.length = 0;
    }
    for (const { bytes } of slice.records) this.keys.push(Buffer.from(decodeRecord(bytes).key ?? []).toString());
  }

  onResult(_id: number, result: QueryResult): void {
    this.results.push(result);
  }

  onDurable(): void {}
  onAnswer(): void {}
  onFeedEnded(): void {}
  onLost(): void {}
}

const openWithRoster = async (): Promise<EmbeddedBroker> => {
  const { broker } = await openBroker(new Disk());
  await ask(broker, { kind: "create-topic", topic: STATE.topic, partitions: 1, compacted: true });
  await put(broker, LIVE, VALUE);
  return broker;
};

const put = async (broker: EmbeddedBroker, keys: readonly string[], value: string | null): Promise<void> => {
  await ask(broker, {
    kind: "append-unfenced",
    batch: { ...STATE, records: keys.map((key) => record(key, value)) },
  });
};

/** So many removals that the oldest of them are forgotten. */
const removeMany = async (broker: EmbeddedBroker, name: string): Promise<void> => {
  const before = broker.partition(STATE)?.forgottenBelow ?? 0n;
  for (let round = 0; broker.partition(STATE)?.forgottenBelow === before; round++) {
    await put(
      broker,
      Array.from({ length: 500 }, (_, index) => `${name}-${round}-${index}`),
      null,
    );
  }
};

const follow = (broker: EmbeddedBroker, reader: Reader): ClientPort => {
  const port = new ClientPort(broker, "client", reader);
  port.follow(1, { ...STATE, role: "role" }, 0n);
  port.sync(2, 1);
  return port;
};

describe("A feed", () => {
  it("I3: comes to the end of a long replay although removals behind its place were forgotten before it began", async () => {
    const broker = await openWithRoster();
    await removeMany(broker, "gone");
    const reader = new Reader();
    reader.room = 1000;
    follow(broker, reader);
    expect(reader.resets).toBe(0);
    expect(reader.keys.slice(0, LIVE.length)).toEqual(LIVE);
    expect(reader.results).toEqual([{ kind: "end", end: broker.partition(STATE)?.end }]);
  });

  it("I2: starts over, once, when a removal of what it has read is forgotten before it came to it", async () => {
    const broker = await openWithRoster();
    await removeMany(broker, "gone");
    const reader = new Reader();
    reader.room = 1;
    const port = follow(broker, reader);
    expect(reader.keys).toContain("live0");
    await put(broker, ["live0"], null);
    await removeMany(broker, "later");
    await removeMany(broker, "last");
    reader.room = 1000;
    port.resume();
    expect(reader.resets).toBe(1);
    expect(reader.keys).not.toContain("live0");
    expect(reader.keys.slice(0, LIVE.length - 1)).toEqual(LIVE.slice(1));
    expect(reader.results).toHaveLength(1);
  });

  it("waits at its end while a deletion of everything is on its way to the disk", async () => {
    const broker = await openWithRoster();
    const first = put(broker, ["first"], VALUE);
    // Its write is under way, so that the next ones wait for it and come behind.
    await new Promise((resolve) => setImmediate(resolve));
    const others = [put(broker, ["second"], VALUE), ask(broker, { kind: "delete-records", target: STATE })];
    const reader = new Reader();
    reader.room = 1000;
    follow(broker, reader);
    await Promise.all([first, ...others]);
    await put(broker, ["after"], VALUE);
    expect(reader.resets).toBe(0);
    expect(reader.keys).toEqual(["after"]);
  });
});
