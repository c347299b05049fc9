import { basename, dirname } from "node:path";
import { LocalError } from "@krabka/local";
import type { DirectoryLock, DurableFile, LogFile, LogFileSystem } from "../src/log/file-system.js";

const PAGE_BYTES = 64;

/** A file as the kernel sees it and as the platter holds it. */
class Inode {
  cached = new Uint8Array(0);
  durable = new Uint8Array(0);
  /** Pages that differ from the platter and that the kernel still means to write. */
  dirty = new Set<number>();

  write(bytes: Uint8Array, position: number): void {
    if (position + bytes.length > this.cached.length) this.resize(position + bytes.length);
    this.cached.set(bytes, position);
    for (let page = Math.floor(position / PAGE_BYTES); page * PAGE_BYTES < position + bytes.length; page++) {
      this.dirty.add(page);
    }
  }

  resize(sizeBytes: number): void {
    const next = new Uint8Array(sizeBytes);
    next.set(this.cached.subarray(0, sizeBytes));
    this.cached = next;
  }

  /** Puts the dirty pages that `keep` chooses on the platter. A page that was never written reads as zeros. */
  flush(keep: (page: number) => boolean, sizeBytes: number): void {
    const next = new Uint8Array(sizeBytes);
    next.set(this.durable.subarray(0, next.length));
    for (const page of this.dirty) {
      if (!keep(page)) continue;
      const from = page * PAGE_BYTES;
      const to = Math.min(from + PAGE_BYTES, this.cached.length, next.length);
      if (from < to) next.set(this.cached.subarray(from, to), from);
      this.dirty.delete(page);
    }
    this.durable = next;
  }

  /** A durable write brings its own pages to the platter, and of the size no more than it takes to find them there. */
  flushRange(position: number, end: number): void {
    this.flush((page) => isIn(page, position, end), Math.max(this.durable.length, end));
  }

  /** The kernel forgets that these pages differ: they are never written unless dirtied again. */
  clean(isLost: (page: number) => boolean): void {
    for (const page of this.dirty) if (isLost(page)) this.dirty.delete(page);
  }
}

const isIn = (page: number, position: number, end: number): boolean =>
  page * PAGE_BYTES < end && (page + 1) * PAGE_BYTES > position;

export interface DiskFaults {
  /** Called before each system call; what it throws is the call's failure. */
  before?: (call: string, path: string) => void;
  /** Called when a sync was asked for; waits and failures are the disk's. */
  sync?: (path: string) => Promise<void> | void;
  /** How many of the bytes a write takes. */
  take?: (bytes: number) => number;
  /** How large all files together may get. */
  roomBytes?: number;
  /** Whether a write without room for all of its bytes takes none of them, as on file systems that reserve the room first. */
  reservesRoom?: boolean;
}

/**
 * A disk in memory that can be unplugged. What was not synced is lost then, or, if the test says so, pages of it reach the
 * platter in any combination. A failed sync marks its pages clean, as Linux does: they are never written unless dirtied again.
 */
export class Disk {
  readonly calls: string[] = [];
  faults: DiskFaults = {};
  #cached = new Map<string, Inode>();
  #durable = new Map<string, Inode>();
  readonly #locks = new Set<string>();
  #life = 0;

  /**
   * The power goes: nothing that was opened before works any more. Unsynced pages, and names in directories, survive only as
   * the test says.
   */
  unplug(keepPage: (page: number) => boolean = () => false, keepName: (path: string) => boolean = () => false): void {
    this.kill();
    for (const path of new Set([...this.#cached.keys(), ...this.#durable.keys()])) {
      const inode = this.#cached.get(path);
      if (inode === this.#durable.get(path) || !keepName(path)) continue;
      if (inode === undefined) this.#durable.delete(path);
      else this.#durable.set(path, inode);
    }
    this.#cached = new Map(this.#durable);
    for (const inode of new Set(this.#cached.values())) {
      const kept = new Set([...inode.dirty].filter(keepPage));
      inode.flush((page) => kept.has(page), kept.size > 0 ? inode.cached.length : inode.durable.length);
      inode.clean(() => true);
      inode.cached = inode.durable.slice();
    }
  }

  /** The process dies; the kernel lives on with all that was written. */
  kill(): void {
    this.#life += 1;
    this.faults = {};
    this.#locks.clear();
  }

  bytesOf(path: string): Uint8Array {
    return this.#inode(path).cached;
  }

  /** Puts bytes into a file behind the log's back, durably. */
  overwrite(path: string, bytes: Uint8Array): void {
    const inode = new Inode();
    inode.cached = bytes.slice();
    inode.durable = bytes.slice();
    this.#cached.set(path, inode);
    this.#durable.set(path, inode);
  }

  delete(path: string): void {
    this.#cached.delete(path);
    this.#durable.delete(path);
  }

  paths(): readonly string[] {
    return [...this.#cached.keys()].sort();
  }

  /** An independent copy of what is on the disk now, as a backup would take it. */
  copy(): Disk {
    const copy = new Disk();
    for (const [path, inode] of this.#cached) copy.overwrite(path, inode.cached);
    return copy;
  }

  /** The disk as one process sees it: after `kill` or `unplug` none of its calls does anything any more. */
  process(): LogFileSystem {
    const life = this.#life;
    const call = (name: string, path: string): void => this.#call(name, path, life);
    return {
      lockDirectory: async (directory): Promise<DirectoryLock> => {
        call("lock", directory);
        if (this.#locks.has(directory)) throw new LocalError("IN_USE", `${directory} is open already`);
        this.#locks.add(directory);
        return { release: () => void (this.#life === life && this.#locks.delete(directory)) };
      },
      makeDirectory: async (directory) => call("mkdir", directory),
      list: async (directory) => {
        call("list", directory);
        return [...this.#cached.keys()].filter((path) => dirname(path) === directory).map((path) => basename(path));
      },
      syncDirectory: async (directory) => {
        call("syncdir", directory);
        await this.faults.sync?.(directory);
        this.#live("syncdir", directory, life);
        this.#syncNames(directory);
      },
      rename: async (from, to) => {
        call("rename", to);
        this.#cached.set(to, this.#inode(from));
        this.#cached.delete(from);
      },
      remove: async (path) => {
        call("remove", path);
        this.#inode(path);
        this.#cached.delete(path);
      },
      create: async (path) => {
        call("create", path);
        const inode = new Inode();
        this.#cached.set(path, inode);
        return this.#file(path, inode, life);
      },
      open: async (path) => {
        call("open", path);
        return this.#file(path, this.#inode(path), life);
      },
      openDurable: async (path) => {
        call("open", path);
        return this.#durableFile(path, this.#inode(path), life);
      },
    };
  }

  #syncNames(directory: string): void {
    for (const path of this.#durable.keys()) {
      if (dirname(path) === directory && !this.#cached.has(path)) this.#durable.delete(path);
    }
    for (const [path, inode] of this.#cached) if (dirname(path) === directory) this.#durable.set(path, inode);
  }

  #inode(path: string): Inode {
    const inode = this.#cached.get(path);
    if (inode === undefined) throw new Error(`ENOENT: ${path}`);
    return inode;
  }

  /** How many bytes of a write find room. What lies within the file needs none. */
  #roomFor(bytes: number, inode: Inode, position: number): number {
    const { roomBytes, reservesRoom = false } = this.faults;
    if (roomBytes === undefined) return bytes;
    let usedBytes = 0;
    for (const { cached } of new Set(this.#cached.values())) usedBytes += cached.length;
    const most = Math.min(bytes, inode.cached.length - position + Math.max(0, roomBytes - usedBytes));
    if (most > 0 && (most === bytes || !reservesRoom)) return most;
    throw Object.assign(new Error("ENOSPC"), { code: "ENOSPC" });
  }

  #live(name: string, path: string, life: number): void {
    if (life !== this.#life) throw new Error(`${name} ${path} by a process that is dead`);
  }

  #call(name: string, path: string, life: number): void {
    this.#live(name, path, life);
    this.faults.before?.(name, path);
    this.calls.push(`${name} ${basename(path)}`);
  }

  #file(path: string, inode: Inode, life: number): LogFile {
    return {
      size: async () => {
        this.#call("size", path, life);
        return inode.cached.length;
      },
      read: async (into, position) => {
        this.#call("read", path, life);
        const part = inode.cached.subarray(position, position + into.length);
        into.set(part);
        return part.length;
      },
      write: async (bytes, position) => {
        this.#call("write", path, life);
        const most = this.#roomFor(bytes.length, inode, position);
        const taken = this.faults.take?.(most) ?? most;
        inode.write(bytes.subarray(0, taken), position);
        return taken;
      },
      truncate: async (sizeBytes) => {
        this.#call("truncate", path, life);
        inode.resize(sizeBytes);
      },
      sync: async () => {
        this.#call("sync", path, life);
        try {
          await this.faults.sync?.(path);
        } catch (error) {
          inode.clean(() => true);
          throw error;
        }
        this.#live("sync", path, life);
        inode.flush(() => true, inode.cached.length);
      },
      close: async () => undefined,
    };
  }

  /** Its one call of the system is noted as two, since it can fail and the power can go before, between and in either. */
  #durableFile(path: string, inode: Inode, life: number): DurableFile {
    const { write, truncate, close } = this.#file(path, inode, life);
    return {
      write: async (bytes, position) => {
        const taken = await write(bytes, position);
        const end = position + taken;
        this.#call("sync", path, life);
        try {
          await this.faults.sync?.(path);
        } catch (error) {
          inode.clean((page) => isIn(page, position, end));
          throw error;
        }
        this.#live("sync", path, life);
        inode.flushRange(position, end);
        return taken;
      },
      truncate,
      close,
    };
  }
}
