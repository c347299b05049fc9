import { type KafkaCluster, type StartKafkaOptions, startKafka } from "./cluster.js";
import { startFaultProxy } from "./fault-proxy.js";

/**
 * The cluster that `KRABKA_BOOTSTRAP=host:port,…` names, else one of its own. A named one is left running by `close()`
 * and has no `brokers` to be stopped. `security` asks for users and listeners of its own, so it never takes the named one.
 */
export async function connectOrStart(options: StartKafkaOptions = {}): Promise<KafkaCluster> {
  const bootstrap = process.env.KRABKA_BOOTSTRAP;
  if (!bootstrap || options.security) return startKafka(options);
  const { proxied = false, signal } = options;
  const faults = proxied ? await startFaultProxy({ bootstrap, ...(signal && { signal }) }) : undefined;
  const close = async () => faults?.close();
  return {
    bootstrap,
    proxiedBootstrap: faults?.bootstrap,
    brokers: [],
    faults,
    secure: undefined,
    close,
    [Symbol.asyncDispose]: close,
  };
}
