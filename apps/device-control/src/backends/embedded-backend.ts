import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TOKEN_HEADER } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import type { LoggedCommand } from "../term-order.js";
import { type Backend, COMMAND_PARTITIONS } from "./backend.js";

const TOPIC = "device-commands";

/** The embedded log: this process owns it in a temporary folder, and the candidates take part through its socket. */
export async function openEmbedded(): Promise<Backend> {
  const directory = await mkdtemp(join(tmpdir(), "device-control-"));
  const socketPath = join(directory, "owner.sock");
  const owner = await EmbeddedTransport.open({
    directory: join(directory, "log"),
    topics: { [TOPIC]: COMMAND_PARTITIONS },
    serve: { socketPath },
  });
  await owner.prepare();
  return {
    topic: TOPIC,
    entryOf: () => ({ transport: "embedded", address: socketPath }),
    readLog: () => readEmbeddedLog(owner),
    [Symbol.asyncDispose]: async () => {
      await owner.close();
      await rm(directory, { recursive: true });
    },
  };
}

async function readEmbeddedLog(owner: EmbeddedTransport): Promise<readonly LoggedCommand[]> {
  const log: LoggedCommand[] = [];
  for (let partition = 0; partition < COMMAND_PARTITIONS; partition++) {
    for await (const { offset, headers } of owner.readTopic({ topic: TOPIC, partition })) {
      const token = headers.find(({ key }) => key === TOKEN_HEADER)?.value;
      log.push({ partition, offset, token: token === undefined ? undefined : Buffer.from(token).toString() });
    }
  }
  return log;
}
