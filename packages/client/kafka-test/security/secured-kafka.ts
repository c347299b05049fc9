import { setTimeout as sleep } from "node:timers/promises";
import { CoordinationClient } from "@krabka/client";
import type { Role, RosterEntry } from "@krabka/core";
import { type KafkaCluster, type SecureAccess, startKafka } from "@krabka/tooling-kafka";
import { DEFAULT_TOPIC, KafkaJsTransport, type KafkaJsTransportOptions } from "@krabka/transport-kafkajs";
import kafkajs, { type AclEntry, type Admin, type KafkaConfig, type SASLOptions } from "kafkajs";

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes, logLevel } = kafkajs;

/** One ACL, as `<operation> <resource type> <name>`. */
export interface Right {
  readonly operation: "READ" | "WRITE" | "DESCRIBE" | "DESCRIBE_CONFIGS" | "CREATE";
  readonly on: "TOPIC" | "TRANSACTIONAL_ID" | "GROUP";
  readonly name: string;
  /** Whether `name` is the beginning of names. @default false */
  readonly prefixed?: boolean;
}

/** All that a member needs where the coordination topic exists. */
export const memberRights = (role: string): readonly Right[] => [
  { operation: "READ", on: "TOPIC", name: DEFAULT_TOPIC },
  { operation: "WRITE", on: "TOPIC", name: DEFAULT_TOPIC },
  { operation: "DESCRIBE_CONFIGS", on: "TOPIC", name: DEFAULT_TOPIC },
  { operation: "WRITE", on: "TRANSACTIONAL_ID", name: role },
];

const aclOf = (user: string, { operation, on, name, prefixed = false }: Right): AclEntry => ({
  principal: `User:${user}`,
  host: "*",
  operation: AclOperationTypes[operation],
  permissionType: AclPermissionTypes.ALLOW,
  resourceType: AclResourceTypes[on],
  resourceName: name,
  resourcePatternType: prefixed ? ResourcePatternTypes.PREFIXED : ResourcePatternTypes.LITERAL,
});

/** The broker ends a login without TLS after this long, unless it is renewed (KIP-368). */
export const SESSION_MS = 3_000;

const passwordOf = (user: string): string => `${user}-secret`;

/** A broker with TLS, users and ACLs. The super user is `admin`; everybody's password is the name and `-secret`. */
export class SecuredKafka {
  readonly secure: SecureAccess;
  /** The super user's own client. */
  readonly operator: CoordinationClient;
  readonly admin: Admin;
  readonly #cluster: KafkaCluster;
  readonly #opened: CoordinationClient[] = [];

  private constructor(cluster: KafkaCluster, secure: SecureAccess) {
    this.#cluster = cluster;
    this.secure = secure;
    this.admin = new kafkajs.Kafka(this.as("admin")).admin();
    this.operator = new CoordinationClient(new KafkaJsTransport({ kafka: this.as("admin") }), { leaseMs: 3_000 });
  }

  static async start(users: readonly string[]): Promise<SecuredKafka> {
    const settings = { "listener.name.sasl_plaintext.connections.max.reauth.ms": String(SESSION_MS) };
    const passwords = Object.fromEntries(["admin", ...users].map((user) => [user, passwordOf(user)]));
    const cluster = await startKafka({ settings, security: { users: passwords, superUsers: ["admin"] } });
    if (cluster.secure === undefined) throw new Error("The broker has no secured listeners");
    const kafka = new SecuredKafka(cluster, cluster.secure);
    await kafka.admin.connect();
    return kafka;
  }

  /** How a user comes in over TLS. */
  as(username: string, { mechanism = "plain", password = passwordOf(username) } = {}): KafkaConfig {
    const { saslSsl, ca } = this.secure;
    const sasl = { mechanism, username, password } as SASLOptions;
    return { brokers: [saslSsl], ssl: { ca }, sasl, logLevel: logLevel.NOTHING };
  }

  /** How a user comes in without TLS, by way of `broker`. */
  withoutTls(username: string, broker = this.secure.saslPlaintext): KafkaConfig {
    const { sasl } = this.as(username);
    // kafkajs renews this long before the end; a broker refuses it within a second of the login.
    return { brokers: [broker], sasl: sasl as SASLOptions, reauthenticationThreshold: SESSION_MS - 1_500 };
  }

  /** A client that ends with the test. */
  client(kafka: KafkaConfig, options: Omit<KafkaJsTransportOptions, "kafka"> = {}): CoordinationClient {
    const transport = new KafkaJsTransport({ kafka: { logLevel: logLevel.NOTHING, ...kafka }, ...options });
    const client = new CoordinationClient(transport, { leaseMs: 3_000 });
    this.#opened.push(client);
    return client;
  }

  async closeClients(): Promise<void> {
    await Promise.all(this.#opened.splice(0).map((client) => client.close()));
  }

  /** Resolves once the broker goes by it. */
  async allow(user: string, ...rights: readonly Right[]): Promise<void> {
    await this.admin.createAcls({ acl: rights.map((right) => aclOf(user, right)) });
    for (const right of rights) await this.#until(user, right, true);
  }

  async revoke(user: string, right: Right): Promise<void> {
    await this.admin.deleteAcls({ filters: [aclOf(user, right)] });
    await this.#until(user, right, false);
  }

  async rosterOf(role: Role): Promise<readonly RosterEntry[]> {
    for await (const { roster } of this.operator.observe(role)) return roster;
    throw new Error("No observation came");
  }

  async close(): Promise<void> {
    await this.operator.close();
    await this.admin.disconnect();
    await this.#cluster.close();
  }

  async #until(user: string, right: Right, wanted: boolean): Promise<void> {
    for (let attempt = 0; attempt < 500; attempt++) {
      const { resources } = await this.admin.describeAcls(aclOf(user, right));
      if (resources.length > 0 === wanted) return;
      await sleep(10);
    }
    throw new Error(`The broker does not go by the change of ${right.operation} for ${user}`);
  }
}
