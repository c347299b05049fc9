import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

export interface SecurityOptions {
  /** Passwords by user, for PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 alike. Letters, digits, `-`, `_` and `.`. */
  readonly users: Readonly<Record<string, string>>;
  /** The users among them that may do everything; the others may do what ACLs allow. @default none */
  readonly superUsers?: readonly string[];
}

/** How the secured listeners are reached. Every address is that of the same brokers. */
export interface SecureAccess {
  /** TLS with user and password. */
  readonly saslSsl: string;
  /** User and password without TLS. */
  readonly saslPlaintext: string;
  /** TLS without a user: whoever comes this way may do everything, as on the plain listener. */
  readonly ssl: string;
  /** The certificate to trust, as PEM. It is valid for `127.0.0.1` and `localhost`. */
  readonly ca: string;
}

export const SECURE_LISTENERS = ["SSL", "SASL_SSL", "SASL_PLAINTEXT"] as const;
export type SecurePorts = Readonly<Record<(typeof SECURE_LISTENERS)[number], number>>;

/** What a secured broker is configured with. */
export interface Security extends SecurityOptions {
  readonly keyStore: string;
  readonly ca: string;
}

const MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const;
/** Opens the key store, which ends with the brokers. */
const KEY_STORE_PASSWORD = "krabka";
const PLAIN_TEXT = /^[\w.-]+$/;

/**
 * Makes a self-signed certificate in `folder`, by the keytool that comes with every Java.
 *
 * @throws Error naming a user or password that cannot be configured, or what keytool said
 */
export async function secure(options: SecurityOptions, folder: string, java: string): Promise<Security> {
  const { users, superUsers = [] } = options;
  for (const [user, password] of Object.entries(users)) {
    if (!PLAIN_TEXT.test(user)) throw new Error(`"${user}" cannot be a user here; wanted letters, digits, - _ .`);
    if (!PLAIN_TEXT.test(password)) throw new Error(`The password of "${user}" may have letters, digits, - _ . only`);
  }
  for (const user of superUsers) {
    if (!Object.hasOwn(users, user)) throw new Error(`The super user "${user}" is not one of the users`);
  }
  const keyStore = join(folder, "broker.p12");
  const certificate = join(folder, "broker.pem");
  const store = ["-keystore", keyStore, "-storetype", "PKCS12", "-storepass", KEY_STORE_PASSWORD, "-alias", "broker"];
  const names = ["-dname", "CN=krabka-broker", "-ext", "san=ip:127.0.0.1,dns:localhost"];
  await keytool(java, [
    "-genkeypair",
    "-keyalg",
    "EC",
    "-groupname",
    "secp256r1",
    "-validity",
    "2",
    ...names,
    ...store,
  ]);
  await keytool(java, ["-exportcert", "-rfc", "-file", certificate, ...store]);
  return { ...options, keyStore, ca: await readFile(certificate, "utf8") };
}

/** Lines of `server.properties` beside those of the listeners. */
export function securityProperties({ users, superUsers = [], keyStore }: Security): Record<string, string> {
  const plainUsers = Object.entries(users).map(([user, password]) => `user_${user}="${password}"`);
  const properties: Record<string, string> = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    // Brokers, controllers and the tests' own tools come without a user.
    "super.users": ["ANONYMOUS", ...superUsers].map((user) => `User:${user}`).join(";"),
    "sasl.enabled.mechanisms": MECHANISMS.join(","),
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": keyStore,
    "ssl.keystore.password": KEY_STORE_PASSWORD,
    "ssl.key.password": KEY_STORE_PASSWORD,
  };
  for (const listener of ["sasl_ssl", "sasl_plaintext"]) {
    properties[`listener.name.${listener}.plain.sasl.jaas.config`] =
      `org.apache.kafka.common.security.plain.PlainLoginModule required ${plainUsers.join(" ")};`;
    for (const mechanism of ["scram-sha-256", "scram-sha-512"]) {
      properties[`listener.name.${listener}.${mechanism}.sasl.jaas.config`] =
        "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    }
  }
  return properties;
}

/** Arguments of the format command: SCRAM users live in the metadata log (KIP-900). */
export function scramArguments({ users }: Security): string[] {
  return Object.entries(users).flatMap(([user, password]) =>
    ["SCRAM-SHA-256", "SCRAM-SHA-512"].flatMap((mechanism) => [
      "--add-scram",
      `${mechanism}=[name=${user},password=${password}]`,
    ]),
  );
}

function keytool(java: string, args: readonly string[]): Promise<void> {
  const command = join(dirname(java), basename(java).replace("java", "keytool"));
  return new Promise((resolve, reject) => {
    execFile(command, args, (error, stdout, stderr) => {
      if (error === null) resolve();
      else reject(new Error(`${command} could not make a certificate: ${stdout}${stderr}`, { cause: error }));
    });
  });
}
