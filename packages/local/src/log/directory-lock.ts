import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { LocalError } from "../errors.js";
import type { DirectoryLock } from "./file-system.js";

/**
 * Locks a directory with flock(2) on the directory itself.
 *
 * Node has no binding for flock. The lock belongs to the open file description, though, which a child shares: a short-lived
 * `flock` command locks the descriptor that it inherited and ends, and the lock stays with this process until it closes
 * the descriptor or dies, however it dies. So:
 * - there is no lock file that could go stale, be empty, name a reused process id or be stolen;
 * - two handles in one process, worker threads included, exclude each other, since each opens its own description;
 * - symbolic links and relative paths lead to the same inode, and so to the same lock;
 * - containers that share a volume on one kernel exclude each other; hosts that share a network file system do as far as
 *   that file system carries flock between them, which most do not do on directories: they refuse, and so does this.
 */
export async function lockDirectory(directory: string): Promise<DirectoryLock> {
  const fd = openSync(directory, "r");
  let release: (() => void) | undefined = () => closeSync(fd);
  const lock: DirectoryLock = {
    release() {
      release?.();
      release = undefined;
    },
  };
  try {
    await lockDescriptor(fd, directory);
    return lock;
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** util-linux and BusyBox have `flock`; Perl is there where only the base of a distribution is. 6 is LOCK_EX | LOCK_NB. */
const LOCKERS: readonly (readonly [string, ...string[]])[] = [
  ["flock", "-n", "-x", "3"],
  ["perl", "-e", 'open(my $d, "<&=", 3) or exit 2; exit(flock($d, 6) ? 0 : $!{EWOULDBLOCK} ? 1 : 2)'],
];

const lockDescriptor = async (fd: number, directory: string): Promise<void> => {
  const failures: string[] = [];
  for (const [command, ...args] of LOCKERS) {
    const { exitCode, output } = await run(command, args, fd);
    if (exitCode === 0 && holdsLock(fd)) return;
    if (exitCode === 1) {
      throw new LocalError(
        "IN_USE",
        `${directory} is open already, in another process or by another handle in this one`,
      );
    }
    failures.push(`${command}: ${output || `exit code ${exitCode}`}`);
  }
  throw new LocalError(
    "UNSUPPORTED",
    `${directory} cannot be locked; wanted is Linux, a file system with flock, and the command flock or perl (${failures.join("; ")})`,
  );
};

/** Asks the kernel, so that a command which claims success without locking is found out. */
const holdsLock = (fd: number): boolean => {
  try {
    return /^lock:.*FLOCK.*WRITE/m.test(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"));
  } catch {
    return false;
  }
};

const run = (
  command: string,
  args: readonly string[],
  fd: number,
): Promise<{ readonly exitCode: number | null; readonly output: string }> =>
  new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe", fd] });
    let output = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      output = (output + text).slice(0, 500);
    });
    child.on("error", (error) => resolve({ exitCode: null, output: error.message }));
    child.on("close", (exitCode) => resolve({ exitCode, output: output.trim() }));
  });
