import { decodeUtf8, FencingToken, KrabkaError, TOKEN_HEADER } from "@krabka/core";
import type { FakeCluster } from "@krabka/testing";
import type { Leadership, WriteRecord, Written } from "../../src/index.js";
import type { Mints } from "./mints.js";

export const DATA_TOPIC = "commands";
export const DATA_PARTITIONS = 2;

/** Nothing of a write that was told this is or will be visible. */
const INVISIBLE = new Set([
  "FENCED",
  "NOT_COMMITTED",
  "NOT_LEADER",
  "QUEUE_FULL",
  "TIMEOUT",
  "ABORTED",
  "INVALID_ARGUMENT",
  "DUPLICATE_MEMBER",
]);

interface Write {
  readonly ids: readonly string[];
  told: { readonly written: readonly Written[] } | { readonly code: string } | undefined;
}

/** All guarded writes of a run, what their callers were told, and whether the log agrees. */
export class Ledger {
  readonly #cluster: FakeCluster;
  readonly #mints: Mints;
  readonly #writes: Write[] = [];
  #nextId = 0;

  constructor(cluster: FakeCluster, mints: Mints) {
    this.#cluster = cluster;
    this.#mints = mints;
  }

  /** How many writes were told what. */
  get tally(): Readonly<Record<string, number>> {
    const tally: Record<string, number> = {};
    for (const { told } of this.#writes) {
      const key = told === undefined ? "unsettled" : "code" in told ? told.code : "committed";
      tally[key] = (tally[key] ?? 0) + 1;
    }
    return tally;
  }

  /** Writes records with ids of their own, and notes what the caller is told. */
  async write(
    leadership: Leadership,
    partitions: readonly number[],
    options: { signal?: AbortSignal; timeoutMs?: number } = {},
  ): Promise<string> {
    const records = partitions.map((partition): WriteRecord & { value: string } => {
      this.#nextId += 1;
      return { topic: DATA_TOPIC, partition, key: leadership.role, value: `${this.#nextId}` };
    });
    const write: Write = { ids: records.map(({ value }) => value), told: undefined };
    this.#writes.push(write);
    try {
      write.told = { written: await leadership.write(records, options) };
      return "committed";
    } catch (error) {
      const code = KrabkaError.is(error) ? error.code : String(error);
      write.told = { code };
      return code;
    }
  }

  /** @throws {Error} where a caller was told something else than the log shows */
  check(): void {
    const found = new Map<string, { partition: number; offset: bigint }[]>();
    for (let partition = 0; partition < DATA_PARTITIONS; partition++) this.#readPartition(partition, found);
    for (const { ids, told } of this.#writes) {
      for (const [index, id] of ids.entries()) {
        const places = found.get(id) ?? [];
        if (places.length > 1) throw new Error(`record ${id} is in the log ${places.length} times`);
        const [place] = places;
        if (told === undefined) continue;
        if ("code" in told) {
          if (!INVISIBLE.has(told.code) && told.code !== "UNKNOWN_OUTCOME") {
            throw new Error(`record ${id} was told ${told.code}, which tells nothing`);
          }
          if (INVISIBLE.has(told.code) && place !== undefined) {
            throw new Error(`record ${id} was told ${told.code} and is in the log at ${place.offset}`);
          }
          continue;
        }
        const written = told.written[index];
        if (written !== undefined && place === undefined && !this.#isDecided(written)) continue;
        if (place?.partition !== written?.partition || place?.offset !== written?.offset) {
          throw new Error(`record ${id} was told ${show(written)} and is at ${show(place)}`);
        }
      }
      const seen = ids.filter((id) => found.has(id)).length;
      if (seen !== 0 && seen !== ids.length && this.#isAllDecided)
        throw new Error(`of the atomic write ${ids} only ${seen} are visible`);
    }
  }

  get #isAllDecided(): boolean {
    return Array.from({ length: DATA_PARTITIONS }, (_, partition) =>
      this.#cluster.log({ topic: DATA_TOPIC, partition }),
    ).every((log) => log.lastStableOffset === log.highWatermark);
  }

  /** Another role's open transaction may still hide what comes after it from committed readers. */
  #isDecided({ topic, partition, offset }: Written): boolean {
    return offset < this.#cluster.log({ topic, partition }).lastStableOffset;
  }

  /** The records of one role carry tokens in the order in which the coordinator minted their pairs. */
  #readPartition(partition: number, found: Map<string, { partition: number; offset: bigint }[]>): void {
    const newest = new Map<string, FencingToken>();
    for (const { key, value, headers, offset } of this.#cluster.read({ topic: DATA_TOPIC, partition })) {
      const id = decodeUtf8(value as Uint8Array);
      found.set(id, [...(found.get(id) ?? []), { partition, offset }]);
      const role = decodeUtf8(key as Uint8Array);
      const header = headers.find((one) => one.key === TOKEN_HEADER);
      const token = FencingToken.parse(decodeUtf8(header?.value as Uint8Array));
      const before = newest.get(role);
      if (before !== undefined && (token.compareTo(before) < 0 || this.#mints.compare(role, token, before) < 0)) {
        throw new Error(
          `role ${role}: record ${id} of token ${token} follows one of ${before} in partition ${partition}`,
        );
      }
      newest.set(role, token);
    }
  }
}

const show = (place: { partition: number; offset: bigint } | undefined): string =>
  place === undefined ? "nowhere" : `${place.partition}/${place.offset}`;
