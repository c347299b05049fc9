/** `statistics.interval.ms` of consumers: how often the reading thread shows that it lives. */
export const HEARTBEAT_MS = 500;
