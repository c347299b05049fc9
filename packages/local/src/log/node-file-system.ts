import { constants, write } from "node:fs";
import { type FileHandle, mkdir, open, readdir, rename, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { lockDirectory } from "./directory-lock.js";
import type { DurableFile, LogFile, LogFileSystem } from "./file-system.js";

const fileOf = (handle: FileHandle): LogFile => ({
  size: async () => (await handle.stat()).size,
  read: async (into, position) => (await handle.read(into, 0, into.length, position)).bytesRead,
  write: async (bytes, position) => (await handle.write(bytes, 0, bytes.length, position)).bytesWritten,
  truncate: (sizeBytes) => handle.truncate(sizeBytes),
  // fdatasync also makes the size durable, since without it the data could not be read back.
  sync: () => handle.datasync(),
  close: () => handle.close(),
});

/**
 * With O_DSYNC a write and its sync are one trip to the thread pool. The write goes around `FileHandle`, whose own costs a
 * tenth of a fast disk's sync more.
 */
const durableFileOf = (handle: FileHandle): DurableFile => ({
  write: (bytes, position) =>
    new Promise((resolve, reject) => {
      write(handle.fd, bytes, 0, bytes.length, position, (error, taken) =>
        error === null ? resolve(taken) : reject(error),
      );
    }),
  truncate: (sizeBytes) => handle.truncate(sizeBytes),
  close: () => handle.close(),
});

const syncDirectory = async (directory: string): Promise<void> => {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
};

/** The machine's own file system. */
export const nodeFileSystem: LogFileSystem = {
  lockDirectory,
  syncDirectory,
  rename,
  remove: unlink,
  list: readdir,
  async makeDirectory(directory) {
    try {
      await mkdir(directory);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    // Also when it was there: whoever made it may have died before the name was durable.
    await syncDirectory(dirname(directory));
  },
  create: async (path) => fileOf(await open(path, "w+")),
  open: async (path) => fileOf(await open(path, "r+")),
  openDurable: async (path) => durableFileOf(await open(path, constants.O_RDWR | constants.O_DSYNC)),
};
