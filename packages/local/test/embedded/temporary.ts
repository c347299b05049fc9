import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Temporary {
  readonly directory: string;
  readonly socketPath: string;
  remove(): Promise<void>;
}

/** A place for a log and a socket, with a path that is short enough for one. */
export async function temporary(): Promise<Temporary> {
  const base = await mkdtemp(join(tmpdir(), "krabka-embedded-"));
  return {
    directory: join(base, "log"),
    socketPath: join(base, "owner.sock"),
    remove: () => rm(base, { recursive: true, force: true }),
  };
}
