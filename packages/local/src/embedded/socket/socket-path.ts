import { once } from "node:events";
import { chmodSync, lstatSync, mkdtempSync, renameSync, rmSync, unlinkSync } from "node:fs";
import { connect, type Server } from "node:net";
import { LocalError } from "../../errors.js";

/** `sockaddr_un` of Linux takes 107 bytes and a zero. */
const MAX_PATH_BYTES = 107;
/** What the first place of the socket adds: a dot, six random characters, and `/s`. */
const SUFFIX_BYTES = 9;

/** @throws {LocalError} `INVALID_ARGUMENT` for a path that no socket can have */
export function checkSocketPath(path: string): void {
  const most = MAX_PATH_BYTES - SUFFIX_BYTES;
  if (path !== "" && Buffer.byteLength(path) <= most) return;
  throw new LocalError(
    "INVALID_ARGUMENT",
    `A socket's path must be 1 to ${most} bytes; ${JSON.stringify(path)} has ${Buffer.byteLength(path)}. Give a shorter socketPath`,
  );
}

/**
 * Lets the server listen under `path`, for this user alone. To be called by the holder of the directory's lock, so that a
 * socket file that is there already is a leftover, unless it belongs to another directory's owner: that one answers.
 *
 * The socket is bound in a directory that only this user may enter, gets its permissions there, and is then renamed: so there
 * is no instant at which others may connect, and none at which a name that was there leads nowhere.
 *
 * @throws {LocalError} `IN_USE` when somebody serves under this path; `INVALID_ARGUMENT` when it is no socket; `FAILED`
 */
export async function listenAt(server: Server, path: string): Promise<() => void> {
  checkSocketPath(path);
  await refuseForeign(path);
  let aside: string | undefined;
  try {
    aside = mkdtempSync(`${path}.`);
    server.listen(`${aside}/s`);
    await once(server, "listening");
    chmodSync(`${aside}/s`, 0o600);
    renameSync(`${aside}/s`, path);
  } catch (error) {
    server.close();
    throw new LocalError("FAILED", `Serving under ${path} failed: ${(error as Error).message}`, { cause: error });
  } finally {
    if (aside !== undefined) rmSync(aside, { recursive: true, force: true });
  }
  const { ino } = lstatSync(path);
  return () => {
    try {
      if (lstatSync(path).ino === ino) unlinkSync(path);
    } catch {
      // Somebody removed it: then there is nothing to do.
    }
  };
}

const refuseForeign = async (path: string): Promise<void> => {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) {
    throw new LocalError("INVALID_ARGUMENT", `${path} is there and is no socket; it is left alone`);
  }
  if (await answers(path)) {
    throw new LocalError("IN_USE", `${path} is served by the owner of another directory`);
  }
};

/** The kernel refuses a connection to a socket file that was left behind. Any other failure may be a busy owner's. */
const NOBODY: readonly (string | undefined)[] = ["ECONNREFUSED", "ENOENT"];

const answers = (path: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(path);
    socket.on("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(!NOBODY.includes(error.code)));
  });
