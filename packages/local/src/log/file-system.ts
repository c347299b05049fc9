/**
 * The few system calls that the log needs. Tests put a disk behind it that drops what was not synced, writes short, fails
 * and crashes between any two calls.
 */
export interface LogFileSystem {
  /**
   * Locks the directory for as long as the returned lock is held or this process lives, whichever ends first.
   *
   * @throws {LocalError} `IN_USE` when anybody holds it, this process included; `UNSUPPORTED`
   */
  lockDirectory(directory: string): Promise<DirectoryLock>;
  /** Creates the directory if it is missing; its parent must exist. The new name is durable when it resolves. */
  makeDirectory(directory: string): Promise<void>;
  /** Names in the directory, in any order. */
  list(directory: string): Promise<readonly string[]>;
  /** Makes creations, renames and removals in the directory durable. */
  syncDirectory(directory: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Creates an empty file, or empties the one that is there. */
  create(path: string): Promise<LogFile>;
  /** Opens an existing file for reading and writing. */
  open(path: string): Promise<LogFile>;
  /** Opens an existing file for writes that are durable one by one. */
  openDurable(path: string): Promise<DurableFile>;
}

export interface LogFile {
  size(): Promise<number>;
  /** Reads at `position` and returns how many bytes came: fewer than wanted is normal, 0 is the end of the file. */
  read(into: Uint8Array, position: number): Promise<number>;
  /** Writes at `position` and returns how many bytes were taken: fewer than given is normal. */
  write(bytes: Uint8Array, position: number): Promise<number>;
  truncate(sizeBytes: number): Promise<void>;
  /** Makes the content and the size durable. After a failure nothing is known about what was written since the last success. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface DurableFile {
  /**
   * Writes at `position` and returns how many bytes were taken: fewer than given is normal. They are durable when it
   * resolves, and so is a size that includes them. After a failure nothing is known about them, as after a failed sync.
   */
  write(bytes: Uint8Array, position: number): Promise<number>;
  truncate(sizeBytes: number): Promise<void>;
  close(): Promise<void>;
}

export interface DirectoryLock {
  /** Idempotent; never rejects. */
  release(): void;
}

/** Reads all of an open file. */
async function readAll(file: LogFile): Promise<Uint8Array> {
  const bytes = new Uint8Array(await file.size());
  let at = 0;
  while (at < bytes.length) {
    const count = await file.read(bytes.subarray(at), at);
    if (count === 0) break;
    at += count;
  }
  return bytes.subarray(0, at);
}

/** Reads a whole file. */
export async function readWhole(fs: LogFileSystem, path: string): Promise<Uint8Array> {
  const file = await fs.open(path);
  try {
    return await readAll(file);
  } finally {
    await file.close();
  }
}

/** How often in a row a write may take nothing before it counts as failed. */
const MAX_IDLE_WRITES = 8;

/** Writes all of `bytes`, however short the single writes are. */
export async function writeAll(file: Pick<LogFile, "write">, bytes: Uint8Array, position: number): Promise<void> {
  let at = 0;
  let idle = 0;
  while (at < bytes.length) {
    const count = await file.write(at === 0 ? bytes : bytes.subarray(at), position + at);
    idle = count === 0 ? idle + 1 : 0;
    if (idle === MAX_IDLE_WRITES) {
      throw new Error(`A write at byte ${position + at} took nothing ${MAX_IDLE_WRITES} times in a row`);
    }
    at += count;
  }
}

/**
 * Writes a whole file under its final name, so that a crash leaves either nothing or all of it: aside, synced, renamed,
 * and the name synced. The file that `name` named before is replaced.
 */
export async function writeFileDurably(
  fs: LogFileSystem,
  directory: string,
  name: string,
  bytes: Uint8Array,
): Promise<void> {
  const aside = `${directory}/${name}${ASIDE_SUFFIX}`;
  const file = await fs.create(aside);
  try {
    await writeAll(file, bytes, 0);
    await file.sync();
  } finally {
    await file.close();
  }
  await fs.rename(aside, `${directory}/${name}`);
  await fs.syncDirectory(directory);
}

/** Ends the name of a file that is not finished. Such files are removed at the next opening. */
export const ASIDE_SUFFIX = ".tmp";
