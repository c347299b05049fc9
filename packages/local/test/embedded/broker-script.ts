import { encodeUtf8, type ProducerPair, type TopicPartition } from "@krabka/core";
import type { FileLog, FileLogOptions } from "@krabka/local";
import { ManualClock } from "@krabka/testing";
import type { BrokerOptions } from "../../src/embedded/broker/broker-options.js";
import { EmbeddedBroker } from "../../src/embedded/broker/embedded-broker.js";
import { decodeRecord, encodeRecord } from "../../src/embedded/broker/record-bytes.js";
import type { BrokerAnswer, BrokerRequest, Origin } from "../../src/embedded/broker/request.js";
import { encodeRequest } from "../../src/embedded/broker/request-codec.js";
import type { Disk } from "../disk.js";
import { openLog } from "../log-script.js";

export interface Bench {
  readonly log: FileLog;
  readonly broker: EmbeddedBroker;
}

/** A broker on a disk in memory. */
export async function openBroker(
  disk: Disk,
  options: Partial<BrokerOptions> = {},
  logOptions: FileLogOptions = {},
): Promise<Bench> {
  const log = await openLog(disk, logOptions);
  const broker = await EmbeddedBroker.open(log, { clock: new ManualClock(), ...options });
  return { log, broker };
}

export const record = (key: string | null, value: string | null): Uint8Array =>
  encodeRecord({
    key: key === null ? null : encodeUtf8(key),
    value: value === null ? null : encodeUtf8(value),
    headers: [],
    timestampMs: 0,
  });

export const ask = (broker: EmbeddedBroker, request: BrokerRequest, origin?: Origin): Promise<BrokerAnswer> =>
  broker.submit(encodeRequest(request), origin);

export async function mint(broker: EmbeddedBroker, role: string): Promise<ProducerPair> {
  const answer = await ask(broker, { kind: "mint", role });
  if (answer.status !== "minted") throw new Error(`a mint was answered with ${answer.status}`);
  return answer.pair;
}

export async function basesOf(answer: Promise<BrokerAnswer>): Promise<readonly bigint[]> {
  const given = await answer;
  if (given.status !== "written") throw new Error(`a write was answered with ${JSON.stringify(given.status)}`);
  return given.bases;
}

export async function reasonOf(answer: Promise<BrokerAnswer>): Promise<string> {
  const given = await answer;
  if (given.status !== "refused") throw new Error(`a refusal was wanted; got ${given.status}`);
  return given.reason;
}

/** What readers see, as `offset key=value`. */
export function visible(broker: EmbeddedBroker, target: TopicPartition): string[] {
  const log = broker.partition(target);
  const { records } = log?.read(0n, Number.POSITIVE_INFINITY) ?? { records: [] };
  const text = (bytes: Uint8Array | null): string => (bytes === null ? "-" : Buffer.from(bytes).toString());
  return records.map(({ offset, bytes }) => {
    const { key, value } = decodeRecord(bytes);
    return `${offset} ${text(key)}=${text(value)}`;
  });
}
