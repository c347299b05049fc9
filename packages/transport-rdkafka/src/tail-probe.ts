import type { Deadline } from "@krabka/core";
import type { ClientSettings } from "./client-config.js";
import { HAND_OVER_MS } from "./consumer-instance.js";
import type { NativeMessage } from "./native-binding.js";
import { type ReadEntry, readEntry } from "./partition-view.js";
import { SteadyConsumer } from "./steady-consumer.js";

interface Scan {
  readonly entries: ReadEntry[];
  readonly end: bigint;
  readonly finish: () => void;
}

/**
 * Reads the end of a partition past the last stable offset, on demand: whether the records between what was read as
 * committed and the end concern a role, or are markers and other roles' only.
 *
 * The committed consumer alone tells that no later than a quarter of a second after: it does not show markers, and learns
 * that there is nothing more from an empty answer, which the broker gives after the longest wait.
 */
export class TailProbe {
  readonly consumer: SteadyConsumer;
  readonly #topic: string;
  readonly #scans = new Map<number, Scan>();
  readonly #turns = new Map<number, Promise<unknown>>();

  constructor(settings: ClientSettings, topic: string) {
    this.#topic = topic;
    this.consumer = new SteadyConsumer(settings, topic, {
      onMessage: (message) => this.#onMessage(message),
      onEnd: ({ partition, offset }) => this.#reached(partition, BigInt(offset)),
      onProblem: () => undefined,
    });
  }

  /** Begin and end of the partition now, uncommitted records included. */
  async bounds(partition: number, deadline: Deadline): Promise<{ begin: bigint; end: bigint }> {
    return await this.consumer.bounds(this.#topic, partition, deadline);
  }

  /** Everything from `from` to `end`, committed or not. One scan of a partition at a time. */
  async scan(partition: number, from: bigint, end: bigint, deadline: Deadline): Promise<readonly ReadEntry[]> {
    const previous = this.#turns.get(partition);
    let leave = (): void => undefined;
    const turn = new Promise<void>((resolve) => {
      leave = resolve;
    });
    const last = turn.then(() => previous);
    this.#turns.set(partition, last);
    try {
      if (previous !== undefined) await deadline.race(previous);
      return await this.#scan(partition, from, end, deadline);
    } finally {
      // What is still on its way from this scan must not be taken for the next one's.
      deadline.clock.setTimer(HAND_OVER_MS, () => {
        leave();
        if (this.#turns.get(partition) === last) this.#turns.delete(partition);
      });
    }
  }

  close(): Promise<void> {
    return this.consumer.close();
  }

  async #scan(partition: number, from: bigint, end: bigint, deadline: Deadline): Promise<readonly ReadEntry[]> {
    const entries: ReadEntry[] = [];
    await deadline.race(this.consumer.start(deadline));
    const done = new Promise<void>((finish) => {
      this.#scans.set(partition, { entries, end, finish });
    });
    this.consumer.assign(partition, from);
    try {
      await deadline.race(done);
    } finally {
      this.#scans.delete(partition);
      this.consumer.unassign(partition);
    }
    return entries;
  }

  #onMessage(message: NativeMessage): void {
    const { partition } = message;
    const scan = this.#scans.get(partition);
    if (scan === undefined) return;
    const entry = readEntry(message);
    if (entry.offset < scan.end) scan.entries.push(entry);
    this.#reached(partition, entry.offset + 1n);
  }

  #reached(partition: number, position: bigint): void {
    const scan = this.#scans.get(partition);
    if (scan !== undefined && position >= scan.end) scan.finish();
  }
}
