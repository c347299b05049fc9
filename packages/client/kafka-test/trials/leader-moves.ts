import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { KrabkaError } from "@krabka/client";
import {
  type CoordinationEntry,
  decodeEntry,
  encodeEntry,
  MemberId,
  partitionForRole,
  Role,
  type TopicPartition,
} from "@krabka/core";
import { leaderOf, moveLeader } from "@krabka/tooling-kafka";
import kafkajs from "kafkajs";
import { expect } from "vitest";
import { LIMIT, type Stage, until } from "./stage.js";
import { runsOr, type Trial } from "./trial.js";

const COORDINATION = "__coordination_state";
const PARTITIONS = 16;
/** One of so many moves happens because the leader stands still; it wakes up as a leader that no longer is one. */
const ZOMBIE_EVERY = 15;
const STANDSTILL_MS = 1_500;

/** What the API said stands at a place, and what a reader must find there. */
interface Claim {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly what: string;
}

/** Partitions change their leader under a member's hands. */
export const leaderMoveTrials: readonly Trial[] = [
  {
    // 200 moves become 15.
    title:
      "B11: each offset that the API gives out holds that very record, though partitions change leaders all the time",
    cluster: {
      brokers: 3,
      // A leader that stands still is replaced while it does.
      settings: { "broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200" },
    },
    run: async (stage) => {
      const [role, topic] = [stage.role(), await stage.topic(2)];
      const home = partitionForRole(role, PARTITIONS);
      const members = [await stage.member("a", { leaseMs: 3_000 }), await stage.member("b", { leaseMs: 3_000 })];
      const claims: Claim[] = [];
      const registered = (offset: bigint, member: string) =>
        claims.push({ topic: COORDINATION, partition: home, offset, what: `registration of ${member}` });
      let [reigns, writes, moves, moving] = [0, 0, 0, true];

      /** One term after the other, with all that a term writes. */
      const reign = async (): Promise<void> => {
        for (let turn = 0; moving || reigns < 2; turn++) {
          const member = members[turn % members.length] as (typeof members)[number];
          const leadership = await member.client.acquire(role, member.id, LIMIT);
          const { token } = leadership;
          const what = `grant to ${member.id} under ${token.producerId}:${token.epoch}`;
          claims.push({ topic: COORDINATION, partition: home, offset: token.term, what });
          for await (const { roster } of member.client.observe(role)) {
            for (const entry of roster) registered(entry.joinOffset, entry.member);
            break;
          }
          reigns += 1;
          for (let write = 0; write < 10 && leadership.isLeader; write++) {
            const value = randomUUID();
            const records = [0, 1].map((partition) => ({ topic, partition, value }));
            const written = await leadership.write(records).catch((error: unknown) => {
              if (!KrabkaError.is(error)) throw error;
              return [];
            });
            if (written.length > 0) writes += 1;
            for (const place of written) claims.push({ ...place, what: value });
          }
          await leadership.resign(LIMIT).catch(() => undefined);
        }
      };

      const first = await members[0]?.client.acquire(role, MemberId.of("a"), LIMIT);
      await first?.resign();
      await stage.inSync(topic);
      const { bootstrap } = stage.cluster;
      const places = [
        { topic: COORDINATION, partition: home },
        { topic, partition: 0 },
        { topic, partition: 1 },
      ];
      const reigning = reign();
      for (const total = runsOr(15); moves < total; moves++) {
        const place = places[moves % places.length] as (typeof places)[number];
        if (moves % ZOMBIE_EVERY === ZOMBIE_EVERY - 1) {
          const leader = await leaderOf(bootstrap, place);
          const broker = stage.cluster.brokers.find(({ id }) => id === leader);
          broker?.pause();
          await sleep(STANDSTILL_MS);
          broker?.resume();
          await stage.inSync(topic);
        } else await moveLeader(bootstrap, place);
        await sleep(Math.random() * 300);
      }
      moving = false;
      await reigning;

      const log = await everythingIn(stage, places);
      const wrong = claims.filter((claim) => log.get(nameOf(claim)) !== claim.what);
      console.log(
        `B11: ${moves} moves, ${reigns} terms, ${writes} writes, ${claims.length} offsets, ${wrong.length} wrong`,
      );
      expect(wrong).toEqual([]);
      expect(writes).toBeGreaterThan(moves / 10);
    },
  },
];

const nameOf = ({ topic, partition, offset }: Omit<Claim, "what">): string => `${topic}/${partition}@${offset}`;

/** What stands at each place for a new reader of committed records that is none of ours. */
const everythingIn = async (stage: Stage, places: readonly TopicPartition[]): Promise<ReadonlyMap<string, string>> => {
  const config = {
    brokers: stage.cluster.bootstrap.split(","),
    clientId: "reader",
    logLevel: kafkajs.logLevel.NOTHING,
  };
  const kafka = new kafkajs.Kafka(config);
  const last = encodeEntry({ kind: "registration-removed", role: Role.of("last"), member: MemberId.of(randomUUID()) });
  const key = Buffer.from(last.key ?? []);
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await producer.connect();
  for (const { topic, partition } of places) {
    await producer.send({ topic, acks: -1, messages: [{ key, value: null, partition }] });
  }
  await producer.disconnect();
  let found: ReadonlyMap<string, string> | undefined;
  await until("a reader to see what the topics hold", async () => {
    // kafkajs gives up while the coordinator of groups is loading.
    found = await readUntil(kafka, places, key).catch(() => undefined);
    return found !== undefined;
  });
  return found as unknown as ReadonlyMap<string, string>;
};

const readUntil = async (
  kafka: kafkajs.Kafka,
  places: readonly TopicPartition[],
  lastKey: Buffer,
): Promise<ReadonlyMap<string, string>> => {
  const consumer = kafka.consumer({ groupId: randomUUID() });
  const found = new Map<string, string>();
  let open = places.length;
  try {
    await consumer.connect();
    await consumer.subscribe({ topics: [...new Set(places.map(({ topic }) => topic))], fromBeginning: true });
    await new Promise<void>((resolve, reject) => {
      consumer.on("consumer.crash", ({ payload }) => reject(payload.error));
      const eachMessage: kafkajs.EachMessageHandler = async ({ topic, partition, message }) => {
        if (message.key?.equals(lastKey)) open -= 1;
        const place = nameOf({ topic, partition, offset: BigInt(message.offset) });
        found.set(place, topic === COORDINATION ? tell(message) : `${message.value}`);
        if (open === 0) resolve();
      };
      consumer.run({ eachMessage }).catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
  return found;
};

/** The same words as in a claim. */
const tell = ({ key, value, headers = {} }: kafkajs.KafkaMessage): string => {
  const known = Object.entries(headers).map(([name, bytes]) => ({ key: name, value: Buffer.from(`${bytes}`) }));
  const entry: CoordinationEntry = decodeEntry({ key, value, headers: known });
  if (entry.kind === "registration") return `registration of ${entry.member}`;
  if (entry.kind !== "lease" || entry.term !== undefined) return entry.kind;
  return `grant to ${entry.member} under ${entry.pair.producerId}:${entry.pair.epoch}`;
};
