interface Waiting {
  readonly start: () => Promise<void>;
  readonly drop: (reason: unknown) => void;
}

export interface TaskOptions {
  /** An urgent task goes before the others that wait. @default "normal" */
  readonly priority?: "normal" | "urgent";
  /** A task that still waits when this fires is dropped, and its call rejects with the reason. */
  readonly signal?: AbortSignal;
}

/** Runs tasks one at a time, until it is closed. Within each priority the order is that of the calls. */
export class SerialQueue {
  readonly #urgent: Waiting[] = [];
  readonly #normal: Waiting[] = [];
  readonly #idle: (() => void)[] = [];
  readonly #held: Promise<unknown>[] = [];
  #running = false;
  #closed: { readonly reason: unknown } | undefined;

  /** Number of tasks that wait. */
  get waiting(): number {
    return this.#urgent.length + this.#normal.length;
  }

  /** Settles as `task` does. */
  run<T>(task: () => Promise<T>, { priority = "normal", signal }: TaskOptions = {}): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#closed !== undefined) {
        reject(this.#closed.reason);
        return;
      }
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const queue = priority === "urgent" ? this.#urgent : this.#normal;
      const onAbort = () => {
        queue.splice(queue.indexOf(waiting), 1);
        reject(signal?.reason);
      };
      const waiting: Waiting = {
        start: () => {
          signal?.removeEventListener("abort", onAbort);
          return task().then(resolve, reject);
        },
        drop: (reason) => {
          signal?.removeEventListener("abort", onAbort);
          reject(reason);
        },
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      queue.push(waiting);
      if (!this.#running) void this.#drain();
    });
  }

  /** For the task that runs: the next one waits for `work` too, which may outlast the task. */
  hold(work: Promise<unknown>): void {
    this.#held.push(work);
  }

  /** Drops what waits and refuses what comes, with this reason. What runs goes on. The first reason stays. */
  close(reason: unknown): void {
    if (this.#closed !== undefined) return;
    this.#closed = { reason };
    for (const { drop } of [...this.#urgent.splice(0), ...this.#normal.splice(0)]) drop(reason);
  }

  /** Resolves once nothing runs and nothing waits. */
  idle(): Promise<void> {
    if (!this.#running) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  async #drain(): Promise<void> {
    this.#running = true;
    for (;;) {
      const next = this.#urgent.shift() ?? this.#normal.shift();
      if (next === undefined) break;
      await next.start();
      await Promise.allSettled(this.#held.splice(0));
    }
    this.#running = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }
}
