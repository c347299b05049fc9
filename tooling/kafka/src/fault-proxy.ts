import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Address } from "./ask.js";
import { type FaultHandle, type FaultRule, FaultRules } from "./fault-rules.js";
import { type BrokerAddress, fetchBrokers } from "./metadata.js";
import { ProxiedConnection } from "./proxied-connection.js";
import { within } from "./within.js";

/** Disturbs what passes between clients and brokers. */
export interface FaultProxy {
  /** Applies the action to the next requests of that API, on any broker. Rules are asked in the order given. */
  inject(rule: FaultRule): FaultHandle;
  /**
   * Drops all bytes in both directions, without any sign on either side, also of new connections. What was dropped
   * stays lost after it ends; an end of one side is passed on then.
   */
  blackhole(on: boolean, brokerId?: number): void;
  /** Ends the clients' connections now; held and delayed requests still reach the broker. */
  cut(brokerId?: number): void;
  /** Removes all rules, lets go what is held, ends blackholes. */
  reset(): void;
  /** How many requests of that API have arrived since the start. */
  requests(apiKey: number): number;
}

export interface StartFaultProxyOptions {
  /** `host:port`, separated by commas, of a cluster without encryption or authentication. */
  readonly bootstrap: string;
  readonly signal?: AbortSignal;
}

export interface RunningFaultProxy extends FaultProxy, AsyncDisposable {
  /** `127.0.0.1:port` in front of every broker, separated by commas. */
  readonly bootstrap: string;
  /** Ends every connection. Further calls do nothing. */
  close(): Promise<void>;
}

const FIRST_ANSWER_LIMIT_MS = 10_000;

/**
 * Puts a proxy in front of every broker of any cluster. Clients that enter by its `bootstrap` never leave it: answers
 * that name brokers are rewritten to name the proxy.
 */
export async function startFaultProxy({ bootstrap, signal }: StartFaultProxyOptions): Promise<RunningFaultProxy> {
  const brokers = await within(FIRST_ANSWER_LIMIT_MS, signal, `an answer of ${bootstrap}`, (bounds) =>
    firstAnswer(bootstrap, bounds),
  );
  const proxy = new ClusterProxy();
  for (const broker of brokers) await proxy.enter(broker);
  return proxy;
}

class ClusterProxy implements RunningFaultProxy {
  readonly #rules = new FaultRules();
  readonly #entrances = new Map<number, Entrance>();
  readonly #dark = new Set<number>();
  #allDark = false;

  get bootstrap(): string {
    return [...this.#entrances.values()].map(({ port }) => `127.0.0.1:${port}`).join(",");
  }

  /** The address in front of a broker; one that is new to the proxy gets its own. */
  async enter(broker: BrokerAddress): Promise<Address> {
    let entrance = this.#entrances.get(broker.id);
    if (entrance === undefined) {
      entrance = new Entrance(broker, (client, onEnd) => {
        return new ProxiedConnection({
          client,
          broker,
          rules: this.#rules,
          isDark: () => this.#allDark || this.#dark.has(broker.id),
          relocate: (other) => this.enter(other),
          onEnd,
        });
      });
      this.#entrances.set(broker.id, entrance);
    }
    await entrance.listening;
    return { host: "127.0.0.1", port: entrance.port };
  }

  inject(rule: FaultRule): FaultHandle {
    return this.#rules.inject(rule);
  }

  blackhole(on: boolean, brokerId?: number): void {
    if (brokerId === undefined) {
      this.#allDark = on;
      if (!on) this.#dark.clear();
    } else if (on) this.#dark.add(brokerId);
    else this.#dark.delete(brokerId);
    if (!on) for (const { connections } of this.#chosen(brokerId)) for (const each of connections) each.settle();
  }

  cut(brokerId?: number): void {
    for (const { connections } of this.#chosen(brokerId)) for (const each of connections) each.cut();
  }

  reset(): void {
    this.#rules.reset();
    this.blackhole(false);
  }

  requests(apiKey: number): number {
    return this.#rules.requests(apiKey);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#entrances.values()].map((entrance) => entrance.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #chosen(brokerId: number | undefined): Entrance[] {
    return [...this.#entrances.values()].filter(({ id }) => brokerId === undefined || id === brokerId);
  }
}

/** The port in front of one broker. */
class Entrance {
  readonly id: number;
  readonly connections = new Set<ProxiedConnection>();
  readonly listening: Promise<unknown>;
  readonly #server: Server;

  constructor(
    broker: BrokerAddress,
    accept: (client: Socket, onEnd: (connection: ProxiedConnection) => void) => ProxiedConnection,
  ) {
    this.id = broker.id;
    this.#server = createServer((client) => {
      this.connections.add(accept(client, (ended) => this.connections.delete(ended)));
    });
    this.#server.unref();
    this.listening = once(this.#server.listen(0, "127.0.0.1"), "listening");
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const connection of this.connections) connection.destroy();
    await closed;
  }
}

async function firstAnswer(bootstrap: string, signal: AbortSignal): Promise<BrokerAddress[]> {
  const failures: unknown[] = [];
  for (const entry of bootstrap.split(",")) {
    const [, host, port] = /^\s*\[?([^\]]+)\]?:(\d+)\s*$/.exec(entry) ?? [];
    if (host === undefined) throw new Error(`"${entry}" is not an address of a broker; wanted host:port`);
    try {
      return await fetchBrokers({ host, port: Number(port) }, signal);
    } catch (error) {
      failures.push(error);
    }
  }
  throw new AggregateError(failures, `no broker answers at ${bootstrap}`);
}
