/**
 * Settings of a new coordination topic, the same whichever member is first and creates it.
 *
 * A renewal every 10 s writes about 8,600 records of 150 bytes a day and role, and a cold reader replays all that was not
 * compacted yet. Cleaning never touches the active segment, so segments are small and roll often.
 */
export const coordinationTopicSettings = (replicationFactor: number): Readonly<Record<string, string>> => ({
  "cleanup.policy": "compact",
  "min.insync.replicas": replicationFactor >= 3 ? "2" : "1",
  "unclean.leader.election.enable": "false",
  // The log's own clock in every record: leases can be judged without comparing the clocks of two members.
  "message.timestamp.type": "LogAppendTime",
  // Rolls every 5 minutes or 1 MiB: a cold reader reads at most about that much that was never cleaned.
  "segment.ms": "300000",
  "segment.bytes": "1048576",
  // Clean as soon as a hundredth is dirty; the whole topic is small, so a cleaning run is too.
  "min.cleanable.dirty.ratio": "0.01",
  "min.compaction.lag.ms": "0",
  "max.compaction.lag.ms": "600000",
  // A day: a reader that was away for less than half of it can go on where it was.
  "delete.retention.ms": "86400000",
});
