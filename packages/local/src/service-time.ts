import type { Clock } from "@krabka/core";

/**
 * The time in which leases and silence are measured: milliseconds since the log was created, never falling.
 *
 * While the service runs it follows the monotonic clock, so a stepped wall clock changes nothing. How long the service was
 * down can only be told by the wall clock: it counts from the last record to the opening, and as nothing if it went back.
 */
export class ServiceTime {
  readonly #clock: Clock;
  readonly #origin: number;

  /** @param lastAtMs service time of the last record @param lastWallMs wall clock at that time */
  constructor(clock: Clock, lastAtMs: number, lastWallMs: number) {
    const downMs = lastWallMs === 0 ? 0 : Math.max(0, Math.floor(clock.wallMs()) - lastWallMs);
    this.#clock = clock;
    this.#origin = lastAtMs + downMs - clock.monotonicMs();
  }

  nowMs(): number {
    return Math.floor(this.#origin + this.#clock.monotonicMs());
  }

  wallMs(): number {
    return Math.max(0, Math.floor(this.#clock.wallMs()));
  }
}
