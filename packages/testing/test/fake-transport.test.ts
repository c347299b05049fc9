import { encodeUtf8, type FeedListener, Role } from "@krabka/core";
import { FakeCluster, FakeTransport, ManualClock } from "@krabka/testing";
import { describe, expect, it } from "vitest";

const record = (topic: string, key: string, value: string) => ({
  topic,
  key: encodeUtf8(key),
  value: encodeUtf8(value),
  headers: [],
});

describe("FakeTransport", () => {
  it("commits, appends and fences", async () => {
    const clock = new ManualClock();
    const cluster = new FakeCluster({ clock });
    cluster.createTopic("commands", { partitions: 3 });
    const role = Role.of("controller");
    const transport = new FakeTransport({ cluster });
    const stop = clock.run();
    await transport.prepare();
    const options = { transactionTimeoutMs: 10_000, mayMint: () => true };
    const a = await transport.openSession(role, options);
    const outcome = await a.commit([record("commands", "k", "1"), record("commands", "k", "2")]);
    expect(outcome.status).toBe("committed");
    const b = await transport.openSession(role, options);
    expect(b.pair.epoch).toBe(a.pair.epoch + 1);
    expect((await a.commit([record("commands", "k", "3")])).status).toBe("fenced");
    expect((await b.commit([record("commands", "k", "4")])).status).toBe("committed");
    const listener: FeedListener = { onRecords() {}, onUncommitted() {}, onReset() {}, onMalformed() {}, onError() {} };
    const feed = transport.follow(role, listener);
    expect(await feed.sync()).toBe(0n);
    await transport.close();
    stop();
  });
});
