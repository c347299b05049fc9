import { MAX_TIMER_MS } from "./clock.js";
import { KrabkaError } from "./errors.js";
import { showValue } from "./show-value.js";

export interface LeaseOptions {
  /** How long a grant or renewal holds. @default 30000; at least 300 */
  readonly leaseMs?: number | undefined;
  /** How often the holder renews. @default a third of the lease */
  readonly renewMs?: number | undefined;
  /** How much longer each further rank waits before it challenges. @default a sixth of the lease */
  readonly staggerMs?: number | undefined;
}

export const DEFAULT_LEASE_MS = 30_000;
/** Shorter leases are not supported: they would be as safe, but a scheduling hiccup would end them. */
export const MIN_LEASE_MS = 300;

/**
 * Timings of a role's lease. They decide how early or late a failover comes, never who may write: that is the epoch.
 */
export class LeaseConfig {
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly staggerMs: number;
  /** What works but is unwise, as sentences. */
  readonly warnings: readonly string[];

  private constructor(leaseMs: number, renewMs: number, staggerMs: number) {
    this.leaseMs = leaseMs;
    this.renewMs = renewMs;
    this.staggerMs = staggerMs;
    this.warnings =
      renewMs * 3 > leaseMs
        ? [`renewMs ${renewMs} is over a third of leaseMs ${leaseMs}: two lost renewals end the lease`]
        : [];
  }

  /**
   * @throws {KrabkaError} `INVALID_ARGUMENT` unless all are whole milliseconds, 1 to 2^31-1 (leaseMs from 300), and
   * renewMs < leaseMs.
   */
  static of(options: LeaseOptions = {}): LeaseConfig {
    const leaseMs = milliseconds("leaseMs", options.leaseMs ?? DEFAULT_LEASE_MS, MIN_LEASE_MS);
    const renewMs = milliseconds("renewMs", options.renewMs ?? Math.floor(leaseMs / 3), 1);
    const staggerMs = milliseconds("staggerMs", options.staggerMs ?? Math.floor(leaseMs / 6), 1);
    if (renewMs >= leaseMs) {
      throw new KrabkaError(
        "INVALID_ARGUMENT",
        `renewMs < leaseMs must hold; got renewMs ${renewMs}, leaseMs ${leaseMs}`,
      );
    }
    return new LeaseConfig(leaseMs, renewMs, staggerMs);
  }
}

const milliseconds = (name: string, value: unknown, least: number): number => {
  if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= MAX_TIMER_MS) return value;
  throw new KrabkaError(
    "INVALID_ARGUMENT",
    `${name} must be whole milliseconds in ${least}..${MAX_TIMER_MS}; got ${showValue(value)}`,
  );
};
