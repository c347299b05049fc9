import { SECURE_LISTENERS, type SecurePorts, type Security, securityProperties } from "./security.js";

export interface Node {
  readonly id: number;
  readonly port: number;
  readonly controllerPort: number;
  /** Of the listeners beside the plain one. */
  readonly securePorts: SecurePorts | undefined;
}

/** The `server.properties` of one combined controller and broker of a KRaft cluster of `nodes`. */
export function serverProperties(
  node: Node,
  nodes: readonly Node[],
  dataFolder: string,
  settings: Readonly<Record<string, string>>,
  security: Security | undefined,
): string {
  const replicas = String(nodes.length);
  const minIsr = nodes.length > 1 ? "2" : "1";
  const secured = securedListeners(node);
  const advertised = [`PLAINTEXT://127.0.0.1:${node.port}`, ...secured].join(",");
  const protocols = ["PLAINTEXT", ...SECURE_LISTENERS].map((protocol) => `${protocol}:${protocol}`);
  const properties: Record<string, string> = {
    "process.roles": "broker,controller",
    "node.id": String(node.id),
    "controller.quorum.voters": nodes.map(({ id, controllerPort }) => `${id}@127.0.0.1:${controllerPort}`).join(","),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    listeners: `${advertised},CONTROLLER://127.0.0.1:${node.controllerPort}`,
    "advertised.listeners": advertised,
    "listener.security.protocol.map": [...protocols, "CONTROLLER:PLAINTEXT"].join(","),
    "log.dirs": dataFolder,
    "auto.create.topics.enable": "false",
    "default.replication.factor": replicas,
    "min.insync.replicas": minIsr,
    "offsets.topic.replication.factor": replicas,
    "transaction.state.log.replication.factor": replicas,
    "transaction.state.log.min.isr": minIsr,
    "share.coordinator.state.topic.replication.factor": replicas,
    "share.coordinator.state.topic.min.isr": minIsr,
    // Few partitions are created fast, and six still give every broker of three its share of the coordinators.
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    // A broker that was killed cannot register again before its old session ends; Kafka's default is 9 s.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",
    ...(security && securityProperties(security)),
    ...settings,
  };
  return Object.entries(properties)
    .map(([key, value]) => `${key}=${value.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")}\n`)
    .join("");
}

function securedListeners({ securePorts }: Node): string[] {
  if (securePorts === undefined) return [];
  return SECURE_LISTENERS.map((protocol) => `${protocol}://127.0.0.1:${securePorts[protocol]}`);
}
