import { type Deadline, type OutgoingRecord, partitionForRecord } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import type { PlacedRecord } from "./write-plan.js";

/** Decides where each record goes, before anything is sent. @throws {KrabkaError} `INVALID_ARGUMENT`, and as `ClusterMap.topic` */
export async function placeRecords(
  map: ClusterMap,
  records: readonly OutgoingRecord[],
  deadline: Deadline,
): Promise<readonly PlacedRecord[]> {
  const placed: PlacedRecord[] = [];
  for (const given of records) {
    const { topic, key, value, headers } = given;
    const { partitions } = await map.topic(topic, deadline);
    const partition = partitionForRecord(given, partitions.length, Math.floor(Math.random() * partitions.length));
    const timestampMs = Math.trunc(given.timestampMs ?? map.clock.wallMs());
    placed.push({ target: { topic, partition }, record: { key, value, headers, timestampMs } });
  }
  return placed;
}
