import { setTimeout as sleep } from "node:timers/promises";
import { type Address, ask } from "./ask.js";
import { fetchPartitions, type PartitionPlace } from "./metadata.js";
import { WireWriter } from "./wire.js";
import { within } from "./within.js";

export interface PartitionName {
  readonly topic: string;
  readonly partition: number;
}

const ELECT_LEADERS = { apiKey: 43, version: 0 };
const ALTER_PARTITION_REASSIGNMENTS = { apiKey: 45, version: 0, flexible: true };
const TRANSACTIONS = "__transaction_state";
const BROKER_LIMIT_MS = 5_000;
const MOVE_LIMIT_MS = 30_000;
const POLL_MS = 20;

/** The broker that leads a partition, -1 while nobody does. `bootstrap` as `KafkaCluster.bootstrap`. */
export async function leaderOf(bootstrap: string, name: PartitionName, signal = limit()): Promise<number> {
  return (await placeOf(bootstrap, name, signal)).leader;
}

/** The broker that coordinates a transactional id: the leader of its partition of the transaction log. */
export async function coordinatorOf(bootstrap: string, transactionalId: string, signal = limit()): Promise<number> {
  return leaderOf(bootstrap, await transactionLogOf(bootstrap, transactionalId, signal), signal);
}

/**
 * Gives a partition another leader while all brokers stay up, as an operator does: another replica becomes the preferred
 * one, then an election follows. Each replica has its turn.
 *
 * Resolves once a broker says so; the others may learn it a moment later.
 */
export async function moveLeader(bootstrap: string, name: PartitionName, signal = limit()): Promise<void> {
  const { leader, replicas, inSync } = await placeOf(bootstrap, name, signal);
  const at = replicas.indexOf(leader);
  const inTurn = [...replicas.slice(at + 1), ...replicas.slice(0, at + 1)];
  const heir = inTurn.find((id) => id !== leader && inSync.includes(id));
  if (heir === undefined) throw new Error(`no other replica of ${name.topic}-${name.partition} is in sync`);
  const order = [heir, ...inTurn.filter((id) => id !== heir)];
  await fromAny(bootstrap, signal, (address, wait) => reassign(address, name, order, wait));
  do {
    await fromAny(bootstrap, signal, (address, wait) => elect(address, name, wait));
    await sleep(POLL_MS, undefined, { signal });
  } while ((await leaderOf(bootstrap, name, signal)) !== heir);
}

/** Gives a transactional id another coordinator, as `moveLeader` does. */
export async function moveCoordinator(bootstrap: string, transactionalId: string, signal = limit()): Promise<void> {
  await moveLeader(bootstrap, await transactionLogOf(bootstrap, transactionalId, signal), signal);
}

const limit = (): AbortSignal => AbortSignal.timeout(MOVE_LIMIT_MS);

async function transactionLogOf(bootstrap: string, transactionalId: string, signal: AbortSignal) {
  const { length } = await partitionsOf(bootstrap, TRANSACTIONS, signal);
  return { topic: TRANSACTIONS, partition: Math.abs(javaHash(transactionalId)) % length };
}

async function placeOf(bootstrap: string, { topic, partition }: PartitionName, signal: AbortSignal) {
  const found = (await partitionsOf(bootstrap, topic, signal)).find((place) => place.partition === partition);
  if (found === undefined) throw new Error(`there is no ${topic}-${partition}`);
  return found;
}

function partitionsOf(bootstrap: string, topic: string, signal: AbortSignal): Promise<PartitionPlace[]> {
  return fromAny(bootstrap, signal, (address, wait) => fetchPartitions(topic, address, wait));
}

/** Replicas in the order of preference. Any broker passes it on to the controller. */
async function reassign(
  address: Address,
  { topic, partition }: PartitionName,
  replicas: readonly number[],
  signal: AbortSignal,
): Promise<void> {
  const body = new WireWriter().int32(BROKER_LIMIT_MS);
  // The length of a compact array is written plus one, and an empty list of tagged fields is a zero.
  body.varint(2).string(topic, true).varint(2).int32(partition);
  body.varint(replicas.length + 1);
  for (const id of replicas) body.int32(id);
  body.varint(0).varint(0).varint(0);
  const answer = await ask(address, { ...ALTER_PARTITION_REASSIGNMENTS, body: body.bytes() }, signal);
  answer.int32(); // throttle time
  const code = answer.int16();
  if (code !== 0) throw new Error(`AlterPartitionReassignments was answered with ${code}`);
}

/** Any broker passes it on to the controller. Whether the election took place, the metadata tells. */
async function elect(address: Address, { topic, partition }: PartitionName, signal: AbortSignal): Promise<void> {
  const body = new WireWriter().int32(1).string(topic).int32(1).int32(partition).int32(BROKER_LIMIT_MS);
  await ask(address, { ...ELECT_LEADERS, body: body.bytes() }, signal);
}

/** The answer of the first broker that gives one. @throws AggregateError when none does */
async function fromAny<T>(
  bootstrap: string,
  signal: AbortSignal,
  request: (address: Address, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const failures: unknown[] = [];
  for (const broker of bootstrap.split(",")) {
    const { hostname: host, port } = new URL(`kafka://${broker}`);
    const address = { host, port: Number(port) };
    try {
      return await within(BROKER_LIMIT_MS, signal, `an answer of ${broker}`, (bounds) => request(address, bounds));
    } catch (error) {
      signal.throwIfAborted();
      failures.push(error);
    }
  }
  throw new AggregateError(failures, `no broker of ${bootstrap} answered`);
}

/** `String.hashCode` of Java, by which brokers place a transactional id. */
const javaHash = (text: string): number => {
  let hash = 0;
  for (let index = 0; index < text.length; index++) hash = (Math.imul(hash, 31) + text.charCodeAt(index)) | 0;
  return hash;
};
