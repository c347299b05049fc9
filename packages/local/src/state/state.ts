import type { MembershipTimings } from "./command.js";
import { memberDueAtMs } from "./membership.js";
import type { Change, Coordinate, History, LeaseEntry, MemberEntry, StateView } from "./model.js";

/** How many openings are remembered. A resume point from before them counts as one of another history. */
const MAX_HISTORIES = 64;

/** Rough size of an entry besides its key and value. */
const ENTRY_BYTES = 64;

/** Everything the authority knows. It changes by `commit` alone. */
export class State implements StateView {
  #revision = 0n;
  #forgottenEpoch = 0n;
  #histories: readonly History[] = [];
  readonly #coordinates = new Map<string, Coordinate>();
  readonly #leases = new Map<string, LeaseEntry>();
  readonly #members = new Map<string, MemberEntry>();
  #coordinateBytes = 0;
  /** Service time of the last change. */
  atMs = 0;
  /** Wall clock at the last change, ms since 1970. */
  wallMs = 0;

  get revision(): bigint {
    return this.#revision;
  }

  get forgottenEpoch(): bigint {
    return this.#forgottenEpoch;
  }

  get histories(): readonly History[] {
    return this.#histories;
  }

  get history(): History | undefined {
    return this.#histories.at(-1);
  }

  /** Keys and values, with a flat charge for each. */
  get coordinateBytes(): number {
    return this.#coordinateBytes;
  }

  get counts(): { readonly coordinates: number; readonly leases: number; readonly members: number } {
    return { coordinates: this.#coordinates.size, leases: this.#leases.size, members: this.#members.size };
  }

  coordinate(key: string): Coordinate | undefined {
    return this.#coordinates.get(key);
  }

  lease(name: string): LeaseEntry | undefined {
    return this.#leases.get(name);
  }

  member(id: string): MemberEntry | undefined {
    return this.#members.get(id);
  }

  coordinates(): ReadonlyMap<string, Coordinate> {
    return this.#coordinates;
  }

  leases(): ReadonlyMap<string, LeaseEntry> {
    return this.#leases;
  }

  members(): ReadonlyMap<string, MemberEntry> {
    return this.#members;
  }

  /** Takes the changes of one transition over, under a new revision. */
  commit(changes: readonly Change[], atMs: number, wallMs: number): void {
    this.#revision += 1n;
    for (const change of changes) this.#take(change);
    this.atMs = atMs;
    this.wallMs = wallMs;
  }

  /** Puts back what an encoded state says, without a new revision. */
  static restore(
    revision: bigint,
    histories: readonly History[],
    changes: Iterable<Change>,
    atMs: number,
    wallMs: number,
  ): State {
    const state = new State();
    for (const change of changes) state.#take(change);
    state.#revision = revision;
    state.#histories = histories;
    state.atMs = atMs;
    state.wallMs = wallMs;
    return state;
  }

  /** When time alone changes something next, in service time; infinite if never. */
  dueAtMs(timings: MembershipTimings): number {
    let due = Number.POSITIVE_INFINITY;
    for (const lease of this.#leases.values()) due = Math.min(due, lease.expiresAtMs);
    for (const member of this.#members.values()) due = Math.min(due, memberDueAtMs(member, timings));
    return due;
  }

  /** How many entries a change adds: 1, 0 or -1. */
  adds(change: Extract<Change, { name: string }>): number {
    const maps = { coordinate: this.#coordinates, lease: this.#leases, member: this.#members };
    return (change.after === undefined ? 0 : 1) - (maps[change.kind].has(change.name) ? 1 : 0);
  }

  /** How many bytes of coordinates a change adds. */
  growth(change: Extract<Change, { name: string }>): number {
    if (change.kind !== "coordinate") return 0;
    return sizeOf(change.name, change.after) - sizeOf(change.name, this.#coordinates.get(change.name));
  }

  #take(change: Change): void {
    switch (change.kind) {
      case "coordinate":
        this.#coordinateBytes += this.growth(change);
        put(this.#coordinates, change.name, change.after);
        break;
      case "lease":
        put(this.#leases, change.name, change.after);
        break;
      case "member":
        put(this.#members, change.name, change.after);
        break;
      case "history":
        this.#histories = [...this.#histories, change.after].slice(-MAX_HISTORIES);
        this.#revision = change.after.from;
        break;
      case "forgotten-epoch":
        this.#forgottenEpoch = change.after;
        break;
    }
  }
}

/** Bytes that a coordinate counts for. */
const sizeOf = (key: string, coordinate: Coordinate | undefined): number =>
  coordinate === undefined ? 0 : ENTRY_BYTES + Buffer.byteLength(key) + coordinate.value.length;

const put = <T>(map: Map<string, T>, name: string, value: T | undefined): void => {
  if (value === undefined) map.delete(name);
  else map.set(name, value);
};
