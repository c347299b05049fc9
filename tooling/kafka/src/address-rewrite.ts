import type { Address } from "./ask.js";
import type { BrokerAddress } from "./metadata.js";
import { WireReader, WireWriter } from "./wire.js";

export interface ApiCall {
  readonly apiKey: number;
  readonly apiVersion: number;
}

const METADATA = 3;
const FIND_COORDINATOR = 10;
const API_VERSIONS = 18;
const DESCRIBE_CLUSTER = 60;
const UNSUPPORTED_VERSION = 35;

/**
 * The newest version of each answer with addresses whose layout is known here. Produce 10 and Fetch 16 carry the
 * address of the new leader deep inside (KIP-951), so that clients are kept to the versions before.
 */
const NEWEST = new Map([
  [0, 9],
  [1, 15],
  [METADATA, 13],
  [FIND_COORDINATOR, 6],
  [DESCRIBE_CLUSTER, 2],
]);

/** Where an answer holds a host and the port behind it. */
interface Place {
  readonly start: number;
  readonly end: number;
  readonly broker: BrokerAddress;
}

/**
 * Puts other addresses into an answer that names brokers, and caps the versions that a broker offers to those which
 * can be rewritten. Every other answer comes back as it was.
 */
export async function rewriteAnswer(
  call: ApiCall,
  answer: Buffer,
  relocate: (broker: BrokerAddress) => Promise<Address>,
): Promise<Buffer> {
  if (call.apiKey === API_VERSIONS) return capVersions(call.apiVersion, answer);
  const { places, flexible } = findAddresses(call, answer);
  if (places.length === 0) return answer;
  const rewritten = new WireWriter();
  let copied = 0;
  for (const { start, end, broker } of places) {
    const { host, port } = await relocate(broker);
    rewritten.raw(answer.subarray(copied, start)).string(host, flexible).int32(port);
    copied = end;
  }
  return rewritten.raw(answer.subarray(copied)).bytes();
}

function capVersions(apiVersion: number, answer: Buffer): Buffer {
  const capped = Buffer.from(answer);
  const reader = new WireReader(capped);
  reader.int32(); // correlation id; the header of this answer is never flexible (KIP-511)
  const error = reader.int16();
  // A broker that does not know the version asked for answers in version 0.
  const flexible = apiVersion >= 3 && error !== UNSUPPORTED_VERSION;
  for (let left = reader.arrayLength(flexible); left > 0; left -= 1) {
    const apiKey = reader.int16();
    reader.int16(); // oldest version
    const at = reader.position;
    const newest = NEWEST.get(apiKey);
    const offered = reader.int16();
    if (newest !== undefined && newest < offered) capped.writeInt16BE(newest, at);
    if (flexible) reader.taggedFields();
  }
  return capped;
}

function findAddresses({ apiKey, apiVersion }: ApiCall, answer: Buffer): { places: Place[]; flexible: boolean } {
  const reader = new WireReader(answer);
  reader.int32(); // correlation id
  switch (apiKey) {
    case METADATA:
      return metadata(reader, apiVersion);
    case FIND_COORDINATOR:
      return findCoordinator(reader, apiVersion);
    case DESCRIBE_CLUSTER:
      return describeCluster(reader, apiVersion);
    default:
      return { places: [], flexible: false };
  }
}

function metadata(reader: WireReader, apiVersion: number) {
  const flexible = apiVersion >= 9;
  if (flexible) reader.taggedFields();
  if (apiVersion >= 3) reader.int32(); // throttle time
  const places = brokerList(reader, flexible, () => {
    if (apiVersion >= 1) reader.string(flexible); // rack
  });
  return { places, flexible };
}

function describeCluster(reader: WireReader, apiVersion: number) {
  const flexible = true;
  reader.taggedFields();
  reader.int32(); // throttle time
  reader.int16(); // error
  reader.string(flexible); // error message
  if (apiVersion >= 1) reader.int8(); // endpoint type
  reader.string(flexible); // cluster id
  reader.int32(); // controller
  const places = brokerList(reader, flexible, () => {
    reader.string(flexible); // rack
    if (apiVersion >= 2) reader.int8(); // is fenced
  });
  return { places, flexible };
}

function findCoordinator(reader: WireReader, apiVersion: number) {
  const flexible = apiVersion >= 3;
  if (flexible) reader.taggedFields();
  if (apiVersion >= 1) reader.int32(); // throttle time
  if (apiVersion < 4) {
    reader.int16(); // error
    if (apiVersion >= 1) reader.string(flexible); // error message
    return { places: [place(reader, flexible)].filter(isSomewhere), flexible };
  }
  const places = Array.from({ length: reader.arrayLength(flexible) }, () => {
    reader.string(flexible); // key
    const found = place(reader, flexible);
    reader.int16(); // error
    reader.string(flexible); // error message
    reader.taggedFields();
    return found;
  });
  return { places: places.filter(isSomewhere), flexible };
}

function brokerList(reader: WireReader, flexible: boolean, skipRest: () => void): Place[] {
  return Array.from({ length: reader.arrayLength(flexible) }, () => {
    const found = place(reader, flexible);
    skipRest();
    if (flexible) reader.taggedFields();
    return found;
  });
}

function place(reader: WireReader, flexible: boolean): Place {
  const id = reader.int32();
  const start = reader.position;
  const host = reader.string(flexible) ?? "";
  const port = reader.int32();
  return { start, end: reader.position, broker: { id, host, port } };
}

/** An answer with an error names broker -1. */
function isSomewhere({ broker }: Place): boolean {
  return broker.id >= 0;
}
