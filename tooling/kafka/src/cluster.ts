import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { BrokerProcess, type KafkaBroker } from "./broker.js";
import { type FaultProxy, startFaultProxy } from "./fault-proxy.js";
import { Guard } from "./guard.js";
import { kafkaClassPath } from "./jars.js";
import { findJava } from "./java.js";
import { fetchBrokers } from "./metadata.js";
import { freePorts } from "./ports.js";
import { SECURE_LISTENERS, type SecureAccess, type SecurityOptions, secure } from "./security.js";
import type { Node } from "./server-properties.js";
import { within } from "./within.js";

export const DEFAULT_KAFKA_VERSION = "4.1.1";

export interface StartKafkaOptions {
  /** Every broker is a controller too. @default 1 */
  readonly brokers?: 1 | 3;
  /** The version of `org.apache.kafka:kafka_2.13`. @default what `KRABKA_KAFKA_VERSION` names, else "4.1.1" */
  readonly version?: string;
  /** Also puts a fault proxy in front of every broker. @default false */
  readonly proxied?: boolean;
  /** Lines of `server.properties` for every broker; they win over the ones chosen here. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Listeners with TLS and SASL beside the plain one, and an authorizer that refuses what no ACL allows. @default none */
  readonly security?: SecurityOptions;
  /** Options of every broker's JVM; they win over the ones chosen here. */
  readonly jvmOptions?: readonly string[];
  /** Ends the boot, not a cluster that runs. */
  readonly signal?: AbortSignal;
}

/** Brokers on the loopback interface that end with this process, however it ends. */
export interface KafkaCluster extends AsyncDisposable {
  /** `127.0.0.1:port`, of every broker, separated by commas. */
  readonly bootstrap: string;
  /** The same brokers behind the fault proxy, when asked for. */
  readonly proxiedBootstrap: string | undefined;
  readonly faults: FaultProxy | undefined;
  /** The secured listeners, when asked for. */
  readonly secure: SecureAccess | undefined;
  readonly brokers: readonly KafkaBroker[];
  /** Kills every process and removes the data. Further calls do nothing. */
  close(): Promise<void>;
}

/**
 * Boots a cluster and waits until it serves.
 *
 * @throws Error saying what to install when Java or Maven is missing; with the end of a broker's log when it fails
 */
export async function startKafka(options: StartKafkaOptions = {}): Promise<KafkaCluster> {
  const {
    brokers: count = 1,
    version = process.env.KRABKA_KAFKA_VERSION || DEFAULT_KAFKA_VERSION,
    proxied = false,
    settings = {},
    jvmOptions = [],
    security: wanted,
    signal,
  } = options;
  const java = await findJava(process.env);
  const classPath = await kafkaClassPath(version, { env: process.env, signal });
  const nodes = await chooseNodes(count, wanted !== undefined);
  const guard = await Guard.open();
  try {
    // A leading zero: an id that begins with "-" would be read as an option of the format command.
    const clusterId = Buffer.concat([Buffer.alloc(1), randomBytes(15)]).toString("base64url");
    const security = wanted && (await secure(wanted, guard.folder, java));
    const launch = { guard, java, classPath, jvmOptions, clusterId, nodes, settings, security };
    const brokers = await Promise.all(nodes.map((node) => BrokerProcess.prepare(node, launch, signal)));
    await Promise.all(brokers.map((broker) => broker.start({ signal })));
    await allKnown(nodes, signal);
    const bootstrap = nodes.map(({ port }) => `127.0.0.1:${port}`).join(",");
    const faults = proxied ? await startFaultProxy({ bootstrap }) : undefined;
    const close = async () => {
      await faults?.close();
      await guard.close();
    };
    return {
      bootstrap,
      proxiedBootstrap: faults?.bootstrap,
      faults,
      secure: security && accessTo(nodes, security.ca),
      brokers,
      close,
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await guard.close();
    throw error;
  }
}

async function chooseNodes(count: number, secured: boolean): Promise<Node[]> {
  const perNode = secured ? 2 + SECURE_LISTENERS.length : 2;
  const ports = await freePorts(perNode * count);
  const next = () => ports.pop() as number;
  return Array.from({ length: count }, (_, index) => ({
    id: index + 1,
    port: next(),
    controllerPort: next(),
    securePorts: secured ? { SSL: next(), SASL_SSL: next(), SASL_PLAINTEXT: next() } : undefined,
  }));
}

function accessTo(nodes: readonly Node[], ca: string): SecureAccess {
  const bootstrap = (listener: (typeof SECURE_LISTENERS)[number]) =>
    nodes.map(({ securePorts }) => `127.0.0.1:${securePorts?.[listener]}`).join(",");
  return { saslSsl: bootstrap("SASL_SSL"), saslPlaintext: bootstrap("SASL_PLAINTEXT"), ssl: bootstrap("SSL"), ca };
}

/** A broker serves as soon as it knows itself; topics with three replicas need all three known to the others. */
async function allKnown(nodes: readonly Node[], signal: AbortSignal | undefined): Promise<void> {
  await within(30_000, signal, "meeting the other brokers", async (bounds) => {
    for (const { port } of nodes) {
      while ((await fetchBrokers({ host: "127.0.0.1", port }, bounds)).length < nodes.length) {
        await sleep(20, undefined, { signal: bounds });
      }
    }
  });
}
