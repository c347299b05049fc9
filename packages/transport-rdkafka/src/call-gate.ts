import type { Deadline } from "@krabka/core";

/**
 * - `quick`: usually answered in milliseconds.
 * - `patient`: repeats something that was not answered in time, or may take long. Some slots are never given to these, so
 *   that a broker that is down slows nobody down whose broker is up.
 */
export type Lane = "quick" | "patient";

interface Waiter {
  readonly lane: Lane;
  enter(): void;
}

/**
 * Bounds how many native calls block at once. node-rdkafka runs them on libuv's thread pool, where they would else take
 * every thread from the process's file reads and name lookups while brokers are down.
 */
export class CallGate {
  readonly #slots: number;
  readonly #patientSlots: number;
  #busy = 0;
  #patientBusy = 0;
  #waiting: Waiter[] = [];

  constructor(slots: number) {
    this.#slots = slots;
    this.#patientSlots = Math.max(1, slots - 1);
  }

  /**
   * Waits for a slot.
   *
   * @returns the function that gives the slot back.
   * @throws {KrabkaError} `TIMEOUT`, `ABORTED` when the call ends first
   */
  enter(lane: Lane, deadline: Deadline | undefined): Promise<() => void> {
    const ended = deadline?.ended;
    if (ended !== undefined) return Promise.reject(ended);
    if (this.#hasRoom(lane)) return Promise.resolve(this.#take(lane));
    return new Promise((resolve, reject) => {
      const leave = deadline?.onEnd((error) => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter);
        reject(error);
      });
      const waiter: Waiter = {
        lane,
        enter: () => {
          leave?.();
          resolve(this.#take(lane));
        },
      };
      this.#waiting.push(waiter);
    });
  }

  #hasRoom(lane: Lane): boolean {
    return this.#busy < this.#slots && (lane === "quick" || this.#patientBusy < this.#patientSlots);
  }

  #take(lane: Lane): () => void {
    this.#busy += 1;
    if (lane === "patient") this.#patientBusy += 1;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#busy -= 1;
      if (lane === "patient") this.#patientBusy -= 1;
      this.#admit();
    };
  }

  #admit(): void {
    for (const lane of ["quick", "patient"] as const) {
      while (this.#hasRoom(lane)) {
        const index = this.#waiting.findIndex((waiter) => waiter.lane === lane);
        if (index < 0) break;
        this.#waiting.splice(index, 1)[0]?.enter();
      }
    }
  }
}

/** libuv's own default and bounds. */
const poolSize = (setting: string | undefined): number => {
  const size = Number.parseInt(setting ?? "4", 10);
  return Number.isNaN(size) ? 1 : Math.min(1024, Math.max(1, size));
};

/** One thread stays free for everybody else, where there is more than one. */
export const slotsFor = (setting: string | undefined): number => Math.max(1, poolSize(setting) - 1);

/** The thread pool is one per process, so what bounds its use has to be too: all transports share this. */
export const nativeCalls = new CallGate(slotsFor(process.env.UV_THREADPOOL_SIZE));
