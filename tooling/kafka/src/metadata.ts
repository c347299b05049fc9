import { type Address, ask } from "./ask.js";
import { type WireReader, WireWriter } from "./wire.js";

export interface BrokerAddress extends Address {
  readonly id: number;
}

/** Who has a partition, as one broker knows it. */
export interface PartitionPlace {
  readonly partition: number;
  /** -1 while nobody leads. */
  readonly leader: number;
  readonly replicas: readonly number[];
  readonly inSync: readonly number[];
}

const METADATA = 3;
/** Spoken by every broker since Kafka 1.0, and still by Kafka 4 (KIP-896). */
const VERSION = 5;

/** Asks one broker which brokers it knows. @throws as `ask` */
export async function fetchBrokers(address: Address, signal: AbortSignal): Promise<BrokerAddress[]> {
  return readBrokers(await askFor([], address, signal));
}

/** Asks one broker for a topic's partitions; none when it does not know the topic. @throws as `ask` */
export async function fetchPartitions(topic: string, address: Address, signal: AbortSignal): Promise<PartitionPlace[]> {
  const reader = await askFor([topic], address, signal);
  readBrokers(reader);
  reader.string(); // cluster id
  reader.int32(); // controller
  reader.arrayLength(); // the one topic
  reader.int16(); // its error
  reader.string(); // its name
  reader.int8(); // whether it is internal
  return list(reader, () => {
    reader.int16(); // error
    const place = {
      partition: reader.int32(),
      leader: reader.int32(),
      replicas: list(reader, () => reader.int32()),
      inSync: list(reader, () => reader.int32()),
    };
    list(reader, () => reader.int32()); // offline replicas
    return place;
  });
}

function askFor(topics: readonly string[], address: Address, signal: AbortSignal): Promise<WireReader> {
  const body = new WireWriter().int32(topics.length);
  for (const topic of topics) body.string(topic);
  // No topic is created by being asked for.
  return ask(address, { apiKey: METADATA, version: VERSION, body: body.int8(0).bytes() }, signal);
}

function readBrokers(reader: WireReader): BrokerAddress[] {
  reader.int32(); // throttle time
  return list(reader, () => {
    const broker = { id: reader.int32(), host: reader.string() ?? "", port: reader.int32() };
    reader.string(); // rack
    return broker;
  });
}

function list<T>(reader: WireReader, read: () => T): T[] {
  return Array.from({ length: reader.arrayLength() }, read);
}
