import { type Clock, MAX_TIMER_MS, type Timer } from "@krabka/core";

interface PendingTimer {
  /** On the monotonic clock of the machine that set it. */
  readonly dueMs: number;
  /** Timers of one instant fire in the order in which they were set. */
  readonly order: number;
  readonly fire: () => void;
}

/** What all machines of one test share: the flow of time and the order of events. */
interface Timeline {
  nowMs: number;
  nextOrder: number;
  readonly machines: ManualClock[];
  watchdog: NodeJS.Timeout | undefined;
  wake: (() => void) | undefined;
}

type Pause = "none" | "suspended" | "frozen";

export interface ManualClockOptions {
  /** @default 1700000000000 (November 2023) */
  readonly wallMs?: number | undefined;
}

/** How long a test may leave set timers waiting, in real time, before the clock tells that nobody advances it. */
const NOBODY_ADVANCES_MS = 5_000;

/** Lets every promise job run, also those that start only after others, and code that waits for `setImmediate` itself. */
const settlePromises = async (): Promise<void> => {
  for (let turn = 0; turn < 2; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
};

/**
 * Time that moves only when a test says so.
 *
 * `advance` is the flow of time. Between two timers it lets all promise jobs run, so code that waits for one timer, works
 * and sets the next one sees both fire within one `advance`. `fork` gives a second machine in the same flow of time, with
 * a wall clock, a suspended state and timers of its own.
 */
export class ManualClock implements Clock {
  readonly #timeline: Timeline;
  readonly #timers: PendingTimer[] = [];
  #wallOffsetMs: number;
  /** How long the monotonic clock stood still so far. */
  #lostMs = 0;
  #pause: Pause = "none";
  #pausedAtMs = 0;

  constructor(options: ManualClockOptions = {}, timeline?: Timeline) {
    this.#timeline = timeline ?? { nowMs: 0, nextOrder: 0, machines: [], watchdog: undefined, wake: undefined };
    this.#wallOffsetMs = (options.wallMs ?? 1_700_000_000_000) - this.#timeline.nowMs;
    this.#timeline.machines.push(this);
  }

  wallMs(): number {
    return Math.floor(this.#timeline.nowMs + this.#wallOffsetMs);
  }

  monotonicMs(): number {
    return (this.#pause === "suspended" ? this.#pausedAtMs : this.#timeline.nowMs) - this.#lostMs;
  }

  setTimer(delayMs: number, fire: () => void): Timer {
    if (!(delayMs >= 0 && delayMs <= MAX_TIMER_MS)) {
      throw new RangeError(`A timer's delay is 0 to ${MAX_TIMER_MS} ms; got ${delayMs}`);
    }
    const timer: PendingTimer = { dueMs: this.monotonicMs() + delayMs, order: this.#timeline.nextOrder++, fire };
    const after = this.#timers.findIndex((other) => other.dueMs > timer.dueMs);
    this.#timers.splice(after < 0 ? this.#timers.length : after, 0, timer);
    this.#watch();
    this.#timeline.wake?.();
    return {
      cancel: () => {
        const index = this.#timers.indexOf(timer);
        if (index >= 0) this.#timers.splice(index, 1);
      },
    };
  }

  /** Timers that wait on this machine. */
  get pendingTimers(): number {
    return this.#timers.length;
  }

  /** A second machine in the same flow of time. @param options where its wall clock stands; by default where this one does */
  fork(options: ManualClockOptions = {}): ManualClock {
    return new ManualClock({ wallMs: options.wallMs ?? this.wallMs() }, this.#timeline);
  }

  /**
   * Lets `ms` pass on every machine of this timeline. Due timers fire in order, each followed by all promise jobs that it
   * causes; a timer which those set within the extent fires too.
   */
  async advance(ms: number): Promise<void> {
    if (!(ms >= 0 && Number.isFinite(ms))) throw new RangeError(`Time moves forward by a finite extent; got ${ms}`);
    const untilMs = this.#timeline.nowMs + ms;
    await settlePromises();
    while (await this.#fireNext(untilMs));
    this.#timeline.nowMs = Math.max(this.#timeline.nowMs, untilMs);
    await settlePromises();
  }

  /**
   * Lets time pass until `promise` settles, jumping from timer to timer, and gives its result.
   *
   * @throws {Error} when no timer is left that could settle it, or `limitMs` have passed.
   */
  async settle<T>(promise: Promise<T>, limitMs = 3_600_000): Promise<T> {
    let settled = false;
    const mark = () => {
      settled = true;
    };
    promise.then(mark, mark);
    const untilMs = this.#timeline.nowMs + limitMs;
    await settlePromises();
    while (!settled) {
      if (await this.#fireNext(untilMs)) continue;
      throw new Error(`Still pending ${limitMs} ms later, or no timer is left that could settle it`);
    }
    return await promise;
  }

  /**
   * Keeps time running as fast as the program allows: whenever all promise jobs are done, the next timer fires. For code
   * that awaits in the ordinary way. Nothing but timers of this timeline may be what such code waits for.
   *
   * @returns stops it.
   */
  run(): () => void {
    let running = true;
    const loop = async () => {
      while (running) {
        await settlePromises();
        if (!running || (await this.#fireNext(Number.POSITIVE_INFINITY))) continue;
        await new Promise<void>((resolve) => {
          this.#timeline.wake = resolve;
        });
      }
    };
    void loop();
    return () => {
      running = false;
      this.#timeline.wake?.();
      this.#timeline.wake = undefined;
    };
  }

  /** Somebody sets this machine's wall clock; nothing else changes. */
  stepWall(ms: number): void {
    this.#wallOffsetMs += ms;
  }

  /** The machine goes to sleep: as on Linux its monotonic clock stands still and no timer fires until `resume`. */
  suspend(): void {
    this.#stop("suspended");
  }

  /** The process stops (SIGSTOP, a blocked event loop): both clocks go on, no timer fires until `resume`. */
  freeze(): void {
    this.#stop("frozen");
  }

  /** Ends `suspend` or `freeze`. What became due fires within the next `advance`, however short. */
  resume(): void {
    if (this.#pause === "suspended") this.#lostMs += this.#timeline.nowMs - this.#pausedAtMs;
    this.#pause = "none";
    this.#timeline.wake?.();
  }

  #stop(pause: Pause): void {
    if (this.#pause !== "none") throw new Error(`The clock is ${this.#pause} already; resume it first`);
    this.#pause = pause;
    this.#pausedAtMs = this.#timeline.nowMs;
  }

  /** Fires the earliest timer that is due at `untilMs` or before, and says whether there was one. */
  async #fireNext(untilMs: number): Promise<boolean> {
    clearTimeout(this.#timeline.watchdog);
    this.#timeline.watchdog = undefined;
    let next: { machine: ManualClock; timer: PendingTimer; atMs: number } | undefined;
    for (const machine of this.#timeline.machines) {
      const timer = machine.#timers[0];
      if (timer === undefined || machine.#pause !== "none") continue;
      const atMs = timer.dueMs + machine.#lostMs;
      if (next === undefined || atMs < next.atMs || (atMs === next.atMs && timer.order < next.timer.order)) {
        next = { machine, timer, atMs };
      }
    }
    if (next === undefined || next.atMs > untilMs) return false;
    next.machine.#timers.shift();
    this.#timeline.nowMs = Math.max(this.#timeline.nowMs, next.atMs);
    next.timer.fire();
    await settlePromises();
    return true;
  }

  #watch(): void {
    this.#timeline.watchdog ??= setTimeout(() => {
      const waiting = this.#timeline.machines.reduce((sum, machine) => sum + machine.#timers.length, 0);
      if (waiting > 0) {
        process.emitWarning(
          `A ManualClock has ${waiting} timers waiting and nobody advanced it for ${NOBODY_ADVANCES_MS} ms; ` +
            "call advance(ms), settle(promise) or run()",
        );
      }
    }, NOBODY_ADVANCES_MS).unref();
  }
}
