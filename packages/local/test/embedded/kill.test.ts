import {
  encodeUtf8,
  KrabkaError,
  type ProducerPair,
  type RecordPosition,
  Role,
  type WriterSession,
} from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import { expect, it } from "vitest";
import { bundle } from "../bundle.js";
import { randomFrom, runs } from "../log-script.js";
import { Talker } from "./processes.js";
import { temporary } from "./temporary.js";

const LANES = 4;
const TOPIC = "log";

/** What one lane was told, and what it does not know. */
interface Lane {
  readonly pairs: ProducerPair[];
  readonly terms: bigint[];
  readonly committed: { readonly value: string; readonly position: RecordPosition }[];
  readonly aborted: string[];
  readonly unknown: string[];
}

it("kill -9 of the owner at any moment: what was acknowledged is there once, tokens and epochs only grow (H2, H13)", async () => {
  const kills = runs(10);
  const place = await temporary();
  const { directory, socketPath } = place;
  const script = await bundle("embedded/owner.ts", `${directory}/..`);
  let owner = new Talker(script, [directory, socketPath]);
  await owner.hear("ready");
  const transport = EmbeddedTransport.connect({ socketPath, topics: { [TOPIC]: LANES }, requestTimeoutMs: 10_000 });
  await transport.prepare();
  const random = randomFrom(10);
  let over = false;

  const lead = async (lane: Lane, index: number): Promise<void> => {
    const role = Role.of(`role-${index}`);
    const target = { topic: TOPIC, partition: index };
    for (let count = 0; !over; ) {
      let session: WriterSession;
      try {
        session = await transport.openSession(role, { transactionTimeoutMs: 1000, mayMint: () => true });
      } catch (error) {
        if (KrabkaError.is(error) && error.code === "UNREACHABLE") continue;
        throw error;
      }
      lane.pairs.push(session.pair);
      for (let write = 0; write < 20 && !over; write++) {
        count += 1;
        const value = `${index}.${count}`;
        const record = { key: null, value: encodeUtf8(value), headers: [] };
        const isAppend = write % 2 === 0;
        let outcome = isAppend
          ? await session.append(target, [record], { timeoutMs: 300 })
          : await session.commit([{ ...target, ...record }], { timeoutMs: 300 });
        if (session.mustRemint) {
          const settled = await session.remint();
          lane.pairs.push(session.pair);
          if (outcome.status === "unknown") outcome = settled ?? outcome;
        }
        if (outcome.status === "committed") {
          const [position] = outcome.positions;
          if (position === undefined) throw new Error("a committed write without a position");
          lane.committed.push({ value, position });
          lane.terms.push(position.offset);
        } else if (outcome.status === "unknown") lane.unknown.push(value);
        else if (outcome.status === "aborted") lane.aborted.push(value);
        else throw new Error(`${value} is ${outcome.status}, and nobody else leads`);
      }
      await session.close();
    }
  };

  const lanes = Array.from(
    { length: LANES },
    (): Lane => ({ pairs: [], terms: [], committed: [], aborted: [], unknown: [] }),
  );
  const work = Promise.all(lanes.map(lead));
  work.catch(() => undefined);
  for (let kill = 0; kill < kills; kill++) {
    await new Promise((resolve) => setTimeout(resolve, 20 + random() * 150));
    await owner.kill();
    owner = new Talker(script, [directory, socketPath]);
    await owner.hear("ready");
  }
  over = true;
  await work;

  let committed = 0;
  for (const [index, lane] of lanes.entries()) {
    const found = new Map<string, bigint>();
    for await (const { value, offset } of transport.readTopic({ topic: TOPIC, partition: index })) {
      const text = Buffer.from(value ?? []).toString();
      expect(found.has(text), `${text} is there twice`).toBe(false);
      found.set(text, offset);
    }
    for (const { value, position } of lane.committed) expect(found.get(value), value).toBe(position.offset);
    for (const value of lane.aborted) expect(found.has(value), `${value} was aborted`).toBe(false);
    expect(lane.unknown).toEqual([]);
    committed += lane.committed.length;
    expect(lane.terms).toEqual([...lane.terms].sort((a, b) => Number(a - b)));
    const ranks = lane.pairs.map(({ producerId, epoch }) => producerId * 100_000n + BigInt(epoch));
    expect(new Set(ranks).size).toBe(ranks.length);
    expect(ranks).toEqual([...ranks].sort((a, b) => Number(a - b)));
  }
  expect(committed).toBeGreaterThan(kills * LANES);
  await transport.close();
  await owner.kill();
  await place.remove();
}, 120_000);
