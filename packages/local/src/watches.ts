import { invalid, LocalError } from "./errors.js";
import type { Change, History } from "./state/model.js";

/** What can be watched. */
export type WatchedKind = "coordinate" | "lease" | "member";

/**
 * What a watcher is told. Never a value: after a notice, read the authority again.
 *
 * - `changed`: something about `name` changed; `present` says whether it exists after that. A listener that has dealt with
 *   it has seen everything up to `at`.
 * - `overflow`: the listener was too slow and notices were dropped. The last notice of a watch, which is closed then. What
 *   was dropped comes again from a new watch from `resumeFrom`, as long as it is remembered.
 */
export type WatchNotice =
  | {
      readonly type: "changed";
      readonly kind: WatchedKind;
      readonly name: string;
      readonly present: boolean;
      readonly at: string;
    }
  | { readonly type: "overflow"; readonly resumeFrom: string };

/** The next notice waits for a returned promise. What it throws or rejects with is reported and changes nothing. */
export type WatchListener = (notice: WatchNotice) => void | Promise<void>;

export interface WatchFilter {
  /** @default all */
  readonly kinds?: readonly WatchedKind[] | undefined;
  /** @default every name */
  readonly prefix?: string | undefined;
  /** Where to go on: `at` of a reading or a notice. @default now */
  readonly from?: string | undefined;
}

export interface Watch {
  /** Cancels what is queued; no notice follows. Idempotent. */
  close(): void;
}

export interface WatchOptions {
  readonly maxWatches: number;
  readonly queueNotices: number;
  readonly rememberedNotices: number;
  readonly onListenerError: (error: unknown) => void;
}

type Changed = Extract<WatchNotice, { type: "changed" }> & { readonly revision: bigint };

export const resumePoint = (revision: bigint, history: History): string => `${revision}@${history.id}`;

/** Tells listeners of durable changes: asynchronously, best effort, bounded. */
export class Watches {
  readonly #options: WatchOptions;
  readonly #watchers = new Set<Watcher>();
  /** The newest notices, oldest first. */
  readonly #remembered: Changed[] = [];
  /** A watch can go on from here or later. */
  #rememberedFrom: bigint;
  #published: bigint;
  #histories: readonly History[];

  /** @param before the revision before the current opening: nothing older is remembered */
  constructor(options: WatchOptions, histories: readonly History[], before: bigint, revision: bigint) {
    this.#options = options;
    this.#histories = histories;
    this.#rememberedFrom = before;
    this.#published = revision;
  }

  get count(): number {
    return this.#watchers.size;
  }

  /** @throws {LocalError} `TOO_OLD`, `OTHER_HISTORY`, `LIMIT_REACHED`, `INVALID_ARGUMENT` */
  open(listener: WatchListener, filter: WatchFilter): Watch {
    const from = filter.from === undefined ? this.#published : this.#checkedRevision(filter.from);
    if (this.#watchers.size >= this.#options.maxWatches) {
      throw new LocalError("LIMIT_REACHED", `${this.#options.maxWatches} watches are open; close one first`);
    }
    const watcher = new Watcher(listener, filter, this.#pointOf(from), this.#options, () =>
      this.#watchers.delete(watcher),
    );
    this.#watchers.add(watcher);
    watcher.catchUp(this.#remembered.filter(({ revision }) => revision > from));
    return watcher;
  }

  /** Takes the changes of one durable record, in order. */
  publish(changes: readonly Change[], revision: bigint): void {
    const notices = changes.flatMap((change) =>
      change.kind === "coordinate" || change.kind === "lease" || change.kind === "member" ? [change] : [],
    );
    // Until its last notice was dealt with, a record that changed several things must come again as a whole.
    const before = this.#pointOf(this.#published);
    const after = this.#pointOf(revision);
    for (const [index, { kind, name, after: value }] of notices.entries()) {
      const at = index === notices.length - 1 ? after : before;
      const notice: Changed = { type: "changed", kind, name, present: value !== undefined, at, revision };
      this.#remembered.push(notice);
      for (const watcher of this.#watchers) watcher.offer(notice);
    }
    this.#published = revision;
    this.#forgetOldest();
  }

  closeAll(): void {
    for (const watcher of [...this.#watchers]) watcher.close();
  }

  #forgetOldest(): void {
    const surplus = this.#remembered.length - this.#options.rememberedNotices;
    // In large steps, since removing from the front moves all the rest.
    if (surplus < Math.max(1, this.#options.rememberedNotices / 8)) return;
    const dropped = this.#remembered.splice(0, surplus);
    this.#rememberedFrom = dropped.at(-1)?.revision ?? this.#rememberedFrom;
  }

  #pointOf(revision: bigint): string {
    // A revision before this opening belongs to the last of those that reach up to it.
    const next = this.#histories.findIndex(({ after }) => revision <= after);
    const index = next < 0 ? this.#histories.length - 1 : Math.max(0, next - 1);
    return resumePoint(revision, this.#histories[index] as History);
  }

  #checkedRevision(point: string): bigint {
    const match = /^(\d{1,19})@([0-9a-f]+)$/.exec(point);
    if (match === null) throw invalid("A resume point", "`at` of a reading or a notice", point);
    const revision = BigInt(match[1] as string);
    const index = this.#histories.findIndex(({ id }) => id === match[2]);
    const end = this.#histories[index + 1]?.after ?? this.#published;
    if (index < 0 || revision > end) {
      throw new LocalError(
        "OTHER_HISTORY",
        `${point} is not in this history; a backup may have been restored. Read everything again, then watch from there`,
      );
    }
    if (revision < this.#rememberedFrom) {
      throw new LocalError(
        "TOO_OLD",
        `Changes since ${point} are no longer remembered; list again, then watch from there`,
      );
    }
    return revision;
  }
}

class Watcher implements Watch {
  readonly #listener: WatchListener;
  readonly #kinds: readonly WatchedKind[] | undefined;
  readonly #prefix: string;
  readonly #options: WatchOptions;
  readonly #onClose: () => void;
  #queue: Changed[] = [];
  #capacity: number;
  #seen: string;
  #overflowed = false;
  #closed = false;
  #delivering = false;

  constructor(listener: WatchListener, filter: WatchFilter, seen: string, options: WatchOptions, onClose: () => void) {
    this.#listener = listener;
    this.#kinds = filter.kinds;
    this.#prefix = filter.prefix ?? "";
    this.#seen = seen;
    this.#capacity = options.queueNotices;
    this.#options = options;
    this.#onClose = onClose;
  }

  /** What was remembered is bounded already, so it does not count against the queue. */
  catchUp(missed: readonly Changed[]): void {
    this.#capacity += missed.length;
    for (const notice of missed) this.offer(notice);
  }

  offer(notice: Changed): void {
    if (this.#closed || this.#overflowed) return;
    if (this.#kinds?.includes(notice.kind) === false || !notice.name.startsWith(this.#prefix)) {
      if (this.#queue.length === 0 && !this.#delivering) this.#seen = notice.at;
      return;
    }
    if (this.#queue.length === this.#capacity) {
      this.#queue = [];
      this.#overflowed = true;
    } else {
      this.#queue.push(notice);
    }
    if (!this.#delivering) void this.#deliver();
  }

  close(): void {
    this.#closed = true;
    this.#queue = [];
    this.#onClose();
  }

  async #deliver(): Promise<void> {
    this.#delivering = true;
    // Never inside the call that caused the change, and after I/O that waits.
    await new Promise((resolve) => setImmediate(resolve));
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      const { revision: _, ...notice } = next;
      await this.#tell(notice);
      this.#seen = notice.at;
    }
    this.#delivering = false;
    if (!this.#overflowed || this.#closed) return;
    await this.#tell({ type: "overflow", resumeFrom: this.#seen });
    this.close();
  }

  async #tell(notice: WatchNotice): Promise<void> {
    try {
      await this.#listener(notice);
    } catch (error) {
      this.#options.onListenerError(error);
    }
  }
}
