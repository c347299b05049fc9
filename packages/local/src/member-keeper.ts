import type { Clock, Timer } from "@krabka/core";
import { invalid, LocalError } from "./errors.js";
import type { CallOptions, CoordinationService, MemberResult } from "./service.js";
import { systemClock } from "./system-clock.js";

export interface MemberKeeperOptions {
  readonly memberId: string;
  /** Where to begin; raised at once if an earlier life had it. @default 1n */
  readonly epoch?: bigint | undefined;
  /** Pause between the end of one heartbeat and the start of the next. */
  readonly heartbeatMs: number;
  /** How long heartbeats may fail before the member declares itself out. */
  readonly giveUpAfterMs: number;
  /** @default the machine's */
  readonly clock?: Clock | undefined;
}

/** A join is refused at most once for each other join that came in between; more often means that two fight for the name. */
const MAX_JOINS = 8;

/**
 * Keeps a member alive, one heartbeat at a time. When the authority no longer knows it, it joins again under a higher epoch;
 * when heartbeats fail for too long, it declares itself out and stops for good.
 */
export class MemberKeeper {
  readonly #service: CoordinationService;
  readonly #options: MemberKeeperOptions;
  readonly #clock: Clock;
  readonly #out = new AbortController();
  #epoch: bigint;
  #heardAtMs: number;
  #beatTimer: Timer | undefined;
  #deadlineTimer: Timer | undefined;
  #beating: Promise<void> | undefined;

  private constructor(service: CoordinationService, options: MemberKeeperOptions, clock: Clock) {
    this.#service = service;
    this.#options = options;
    this.#clock = clock;
    this.#epoch = options.epoch ?? 1n;
    this.#heardAtMs = clock.monotonicMs();
  }

  /** Joins and is ALIVE when it resolves. @throws {LocalError} as `join`; `LOST` when somebody else fights for the name */
  static async start(service: CoordinationService, options: MemberKeeperOptions): Promise<MemberKeeper> {
    const { heartbeatMs, giveUpAfterMs } = options;
    if (!(heartbeatMs >= 1)) throw invalid("heartbeatMs", "1 or more", heartbeatMs);
    if (!(giveUpAfterMs > heartbeatMs))
      throw invalid("giveUpAfterMs", `more than heartbeatMs ${heartbeatMs}`, giveUpAfterMs);
    const keeper = new MemberKeeper(service, options, options.clock ?? systemClock);
    await keeper.#join();
    keeper.#armBeat();
    keeper.#armDeadline();
    return keeper;
  }

  /** Of the current life; changes when it had to join again. */
  get epoch(): bigint {
    return this.#epoch;
  }

  /** Fires once, when the member is out: a `LocalError` with code `LOST`, or `CLOSED` after `leave`. */
  get signal(): AbortSignal {
    return this.#out.signal;
  }

  async leave(options: CallOptions = {}): Promise<void> {
    this.#end(new LocalError("CLOSED", `Member ${this.#options.memberId} left`));
    await this.#beating;
    await this.#service.leave(this.#options.memberId, this.#epoch, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }

  async #join(): Promise<void> {
    const { memberId } = this.#options;
    for (let attempt = 0; attempt < MAX_JOINS; attempt++) {
      const joined = await this.#service.join(memberId, this.#epoch, { signal: this.signal });
      const beat = joined.success ? await this.#beatOnce() : joined;
      if (beat.success) return;
      this.#epoch = beat.epochToBeat + 1n;
    }
    throw new LocalError("LOST", `Member ${memberId} was outbid ${MAX_JOINS} times: another process uses its name`);
  }

  async #beatOnce(): Promise<MemberResult> {
    const startedMs = this.#clock.monotonicMs();
    const result = await this.#service.heartbeat(this.#options.memberId, this.#epoch, {
      signal: this.signal,
    });
    if (result.success) this.#heardAtMs = startedMs;
    return result;
  }

  async #beat(): Promise<void> {
    try {
      const result = await this.#beatOnce();
      if (result.success) return;
      if (result.reason === "STALE_EPOCH") {
        this.#end(
          new LocalError("LOST", `Member ${this.#options.memberId} lives on elsewhere at epoch ${result.epochToBeat}`),
        );
      } else {
        this.#epoch = result.epochToBeat + 1n;
        await this.#join();
      }
    } catch (error) {
      // The next heartbeat tries again, until the deadline. A lost fight for the name is final.
      if (LocalError.is(error) && error.code === "LOST") this.#end(error);
    }
  }

  #armBeat(): void {
    this.#beatTimer = this.#clock.setTimer(this.#options.heartbeatMs, () => {
      this.#beating = this.#beat().finally(() => {
        this.#beating = undefined;
        if (!this.#out.signal.aborted) this.#armBeat();
      });
    });
  }

  /** Also for heartbeats that never settle. */
  #armDeadline(): void {
    const { memberId, giveUpAfterMs } = this.#options;
    const leftMs = this.#heardAtMs + giveUpAfterMs - this.#clock.monotonicMs();
    this.#deadlineTimer = this.#clock.setTimer(Math.max(0, leftMs), () => {
      const silentMs = this.#clock.monotonicMs() - this.#heardAtMs;
      if (silentMs < giveUpAfterMs) this.#armDeadline();
      else this.#end(new LocalError("LOST", `Member ${memberId} is out: no heartbeat was taken for ${silentMs} ms`));
    });
  }

  #end(reason: LocalError): void {
    this.#beatTimer?.cancel();
    this.#deadlineTimer?.cancel();
    this.#out.abort(reason);
  }
}
