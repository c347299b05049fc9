import type { Clock } from "@krabka/core";
import type { LocalError } from "../../errors.js";
import type { LogStatus } from "../../log/durable-log.js";
import { FileLog } from "../../log/file-log.js";
import type { LogFileSystem } from "../../log/file-system.js";
import type { OpenPort, PortListener } from "../link/port.js";
import { checkSocketPath } from "../socket/socket-path.js";
import { SocketServer } from "../socket/socket-server.js";
import type { BrokerOptions } from "./broker-options.js";
import { ClientPort } from "./client-port.js";
import { EmbeddedBroker } from "./embedded-broker.js";
import type { Sighting } from "./openings.js";
import { encodeRequest } from "./request-codec.js";

export interface HostOptions extends Omit<BrokerOptions, "clock"> {
  /** Of this broker alone. It is created if it is missing; its parent must exist. */
  readonly directory: string;
  /** The largest write: one call's records together. @default 16 MiB */
  readonly maxWriteBytes?: number | undefined;
  /** A file of the log that has reached this size is followed by a new one. @default 8 MiB */
  readonly segmentBytes?: number | undefined;
  /** @default 1000 */
  readonly maxConnections?: number | undefined;
  /** How long another process may read nothing at all while more waits for it. @default 30000 */
  readonly slowReaderMs?: number | undefined;
  /** @default the machine's */
  readonly fileSystem?: LogFileSystem | undefined;
}

const DEFAULT_MAX_WRITE_BYTES = 16 * 1024 * 1024;

/** The owner: the log, the broker on it, and the socket through which others take part. */
export class BrokerHost {
  readonly broker: EmbeddedBroker;
  readonly #log: FileLog;
  readonly #server: SocketServer | undefined;
  #closing: Promise<void> | undefined;

  private constructor(log: FileLog, broker: EmbeddedBroker, server: SocketServer | undefined) {
    this.#log = log;
    this.broker = broker;
    this.#server = server;
  }

  /** @throws {LocalError} `IN_USE`, `DAMAGED`, `UNSUPPORTED`, `INVALID_ARGUMENT`, `FAILED` */
  static async open(options: HostOptions, socketPath: string | undefined, clock: Clock): Promise<BrokerHost> {
    if (socketPath !== undefined) checkSocketPath(socketPath);
    const { maxWriteBytes = DEFAULT_MAX_WRITE_BYTES, segmentBytes, fileSystem, maxConnections, slowReaderMs } = options;
    // The lock on the directory comes first: it alone says who the owner is.
    const log = await FileLog.open(options.directory, { maxRecordBytes: maxWriteBytes, segmentBytes, fileSystem });
    try {
      const broker = await EmbeddedBroker.open(log, { ...options, clock });
      const server =
        socketPath === undefined
          ? undefined
          : await SocketServer.listen(broker, { socketPath, clock, maxConnections, slowReaderMs });
      return new BrokerHost(log, broker, server);
    } catch (error) {
      await log.close();
      throw error;
    }
  }

  get failure(): LocalError | undefined {
    return this.broker.failure;
  }

  status(): LogStatus {
    return this.#log.status();
  }

  get warnings(): readonly string[] {
    return this.#log.warnings;
  }

  /** @throws {LocalError} `OTHER_HISTORY`, `FAILED` */
  async connect(client: string, seen: Sighting | undefined, listener: PortListener): Promise<OpenPort> {
    const { broker } = this;
    broker.requireContinues(seen);
    const isKnown = broker.isKnown(client);
    await broker.submit(encodeRequest({ kind: "register-client" }), { client, sequence: 0n, acked: 0n });
    const port = new ClientPort(broker, client, listener);
    return { port, isKnown, sighting: broker.sighting, maxRequestBytes: broker.maxRequestBytes };
  }

  /** Ends the connections, then frees the directory. Idempotent; never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // The socket goes while the directory is still locked, so that it can't be a successor's.
    this.#server?.close(this.failure?.message ?? "the owner was closed");
    await this.broker.close();
    await this.#log.close();
  }
}
