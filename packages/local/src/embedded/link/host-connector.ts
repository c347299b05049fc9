import { type Clock, type ErrorCode, KrabkaError } from "@krabka/core";
import { LocalError, type LocalErrorCode } from "../../errors.js";
import { BrokerHost, type HostOptions } from "../broker/broker-host.js";
import type { Sighting } from "../broker/openings.js";
import { otherHistory } from "./other-history.js";
import type { Connector, OpenPort, PortListener } from "./port.js";

export interface HostConnectorParts {
  readonly options: HostOptions;
  readonly socketPath: string | undefined;
  readonly clock: Clock;
  /** The owner that was opened already. */
  readonly host: BrokerHost | undefined;
  /** Where another process may be the owner; it is asked first. */
  readonly others: Connector | undefined;
}

/**
 * The way of an owner to its own broker. After a failure of storage it opens the directory again, which reads everything
 * back from the disk. Where others may own it, too, it connects to them, and becomes the owner when there is none: the lock
 * on the directory decides, so two can't.
 */
export class HostConnector implements Connector {
  readonly where: string;
  readonly #parts: HostConnectorParts;
  #host: BrokerHost | undefined;
  /** One at a time: siblings share the host. */
  #turn: Promise<unknown> = Promise.resolve();
  #closed: KrabkaError | undefined;

  constructor(parts: HostConnectorParts) {
    this.#parts = parts;
    this.#host = parts.host;
    this.where = `The broker in ${parts.options.directory}`;
  }

  /** Defined while this process is the owner. */
  get host(): BrokerHost | undefined {
    return this.#host;
  }

  connect(client: string, seen: Sighting | undefined, listener: PortListener): Promise<OpenPort> {
    const turn = this.#turn.then(() => this.#connect(client, seen, listener));
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  async close(): Promise<void> {
    this.#closed ??= new KrabkaError("CLOSED", "The owner was closed");
    await this.#parts.others?.close();
    await this.#turn;
    await this.#host?.close();
  }

  async #connect(client: string, seen: Sighting | undefined, listener: PortListener): Promise<OpenPort> {
    if (this.#closed !== undefined) throw this.#closed;
    if (this.#host?.failure !== undefined) {
      await this.#host.close();
      this.#host = undefined;
    }
    if (this.#host === undefined) {
      const other = await this.#connectToOther(client, seen, listener);
      if (other !== undefined) return other;
    }
    try {
      const { options, socketPath, clock } = this.#parts;
      this.#host ??= await BrokerHost.open(options, socketPath, clock);
      return await this.#host.connect(client, seen, listener);
    } catch (error) {
      if (LocalError.is(error) && error.code === "OTHER_HISTORY") {
        // Whoever knows better must not be the one that others take for the owner.
        this.#closed = otherHistory(error.message, error);
        await this.#host?.close();
        throw this.#closed;
      }
      throw LocalError.is(error)
        ? new KrabkaError(CODES[error.code] ?? "UNREACHABLE", error.message, { cause: error })
        : error;
    }
  }

  async #connectToOther(
    client: string,
    seen: Sighting | undefined,
    listener: PortListener,
  ): Promise<OpenPort | undefined> {
    try {
      return await this.#parts.others?.connect(client, seen, listener);
    } catch (error) {
      if (KrabkaError.is(error) && error.code === "UNREACHABLE") return undefined;
      throw error;
    }
  }
}

const CODES: { readonly [C in LocalErrorCode]?: ErrorCode } = {
  INVALID_ARGUMENT: "INVALID_ARGUMENT",
  UNSUPPORTED: "UNSUPPORTED",
};
