import { type Deadline, KrabkaError, type OutgoingRecord, partitionForRecord, type RawRecord } from "@krabka/core";
import type { ProducerMessage } from "./producer-instance.js";
import type { TopicDirectory } from "./topic-directory.js";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * node-rdkafka makes a string of every header value on its way out, so bytes that are no UTF-8 would arrive as others.
 *
 * @throws {KrabkaError} `INVALID_ARGUMENT`
 */
const headersOf = ({ headers }: RawRecord): readonly Readonly<Record<string, string>>[] =>
  headers.map(({ key, value }) => {
    try {
      return { [key]: utf8.decode(value) };
    } catch (cause) {
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `node-rdkafka carries header values as UTF-8 text; that of header ${JSON.stringify(key)} is not`,
        { cause },
      );
    }
  });

/** A record in the form that the native producer takes. @throws {KrabkaError} `INVALID_ARGUMENT` */
export const messageOf = (
  record: RawRecord,
  topic: string,
  partition: number,
  timestampMs: number,
): ProducerMessage => ({
  topic,
  partition,
  key: record.key,
  value: record.value,
  headers: headersOf(record),
  timestampMs: Math.floor(timestampMs),
});

/** Decides where each record goes, before anything is sent. */
export class WritePlanner {
  readonly #topics: TopicDirectory;
  readonly #wallMs: () => number;
  #keyless = 0;

  constructor(topics: TopicDirectory, wallMs: () => number) {
    this.#topics = topics;
    this.#wallMs = wallMs;
  }

  /** @throws {KrabkaError} `INVALID_ARGUMENT`, `UNKNOWN_TOPIC`, `UNAUTHORIZED`, `UNREACHABLE`, `TIMEOUT`, `ABORTED` */
  async plan(records: readonly OutgoingRecord[], deadline: Deadline): Promise<readonly ProducerMessage[]> {
    const counts = new Map<string, number>();
    for (const { topic } of records) {
      if (!counts.has(topic)) counts.set(topic, await this.#topics.partitionsOf(topic, deadline));
    }
    const nowMs = this.#wallMs();
    return records.map((record) => {
      const turn = record.key === null ? this.#keyless++ : 0;
      const partition = partitionForRecord(record, counts.get(record.topic) as number, turn);
      return messageOf(record, record.topic, partition, record.timestampMs ?? nowMs);
    });
  }
}
