import { Deadline, encodeUtf8 } from "@krabka/core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ClientConfig } from "../src/client-config.js";
import { SteadyConsumer } from "../src/steady-consumer.js";
import { systemClock } from "../src/system-clock.js";
import { type RdKafkaHarness, startHarness } from "./rdkafka-harness.js";

const FIND_COORDINATOR = 10;
const GROUP_AUTHORIZATION_FAILED = 30;

/** The refusal of a member without rights on its group, in the versions that librdkafka 2.12 speaks (1 and 2). */
const refusal = (): Buffer => {
  const answer = Buffer.alloc(18);
  answer.writeInt16BE(GROUP_AUTHORIZATION_FAILED, 4);
  answer.writeInt16BE(-1, 6);
  answer.writeInt32BE(-1, 8);
  answer.writeInt16BE(0, 12);
  answer.writeInt32BE(-1, 14);
  return answer;
};

let harness: RdKafkaHarness;

beforeAll(async () => {
  harness = await startHarness();
});
afterAll(async () => {
  await harness.close();
});

const append = (value: string) =>
  harness.appendRaw({ topic: "read", partition: 0 }, [{ key: null, value: encodeUtf8(value), headers: [] }]);

const until = async (done: () => boolean): Promise<void> => {
  const endsAtMs = performance.now() + 15_000;
  while (!done()) {
    if (performance.now() > endsAtMs) throw new Error("waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

describe("a consumer whose reading thread ended", () => {
  it("says why, and goes on where it was: nothing is missing and nothing comes twice", async () => {
    await harness.createTopic("read", 1);
    const read: string[] = [];
    const problems: number[] = [];
    harness.cluster.faults?.inject({ apiKey: FIND_COORDINATOR, action: { answer: refusal } });
    const settings = new ClientConfig(harness.cluster.proxiedBootstrap ?? "", 10_000).reading("committed");
    const consumer = new SteadyConsumer(settings, "read", {
      onMessage: ({ value }) => read.push(String(value)),
      onEnd: () => {},
      onProblem: (code) => problems.push(code),
    });
    await append("first");
    await consumer.start(new Deadline(systemClock, undefined, 10_000));
    consumer.assign(0, 0n);
    await until(() => problems.includes(GROUP_AUTHORIZATION_FAILED));
    await append("second");
    await until(() => read.length === 2);
    expect(read).toEqual(["first", "second"]);
    await consumer.close();
  });
});
