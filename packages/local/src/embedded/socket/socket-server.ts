import { createServer, type Server } from "node:net";
import type { Clock } from "@krabka/core";
import type { EmbeddedBroker } from "../broker/embedded-broker.js";
import { ServerConnection } from "./server-connection.js";
import { listenAt } from "./socket-path.js";

export interface SocketServerOptions {
  readonly clock: Clock;
  readonly socketPath: string;
  /** @default 1000 */
  readonly maxConnections?: number | undefined;
  /** How long a reader may take nothing at all while more waits for it. @default 30000 */
  readonly slowReaderMs?: number | undefined;
}

/** Serves a broker to other processes of this user on this host. */
export class SocketServer {
  readonly #server: Server;
  readonly #connections = new Set<ServerConnection>();
  readonly #byClient = new Map<string, ServerConnection>();
  #unlink: () => void = () => undefined;

  private constructor(broker: EmbeddedBroker, options: SocketServerOptions) {
    const { clock, maxConnections = 1000, slowReaderMs = 30_000 } = options;
    this.#server = createServer((socket) => {
      const connection = new ServerConnection(socket, {
        broker,
        clock,
        slowReaderMs,
        onIdentified: (client, identified) => {
          // What an earlier connection has received and not executed must not be executed behind the new one's back.
          this.#byClient.get(client)?.destroy();
          this.#byClient.set(client, identified);
        },
        onClosed: (closed) => this.#forget(closed),
      });
      this.#connections.add(connection);
      if (this.#connections.size > maxConnections) {
        connection.end(`${maxConnections} connections are open already; maxConnections is reached`);
      }
    });
  }

  /** @throws {LocalError} `IN_USE`, `INVALID_ARGUMENT`, `FAILED` */
  static async listen(broker: EmbeddedBroker, options: SocketServerOptions): Promise<SocketServer> {
    const server = new SocketServer(broker, options);
    server.#unlink = await listenAt(server.#server, options.socketPath);
    // A failed accept (too many open files) concerns that one caller, who tries again.
    server.#server.on("error", () => undefined);
    return server;
  }

  /** Removes the socket and ends all connections. */
  close(why: string): void {
    this.#unlink();
    this.#server.close();
    for (const connection of [...this.#connections]) connection.end(why);
  }

  #forget(connection: ServerConnection): void {
    this.#connections.delete(connection);
    for (const [client, other] of this.#byClient) if (other === connection) this.#byClient.delete(client);
  }
}
