import { type Deadline, KrabkaError, MAX_INT64, type ProducerPair, type Role } from "@krabka/core";
import type { ClusterMap } from "./cluster-map.js";
import { errorOf, onRole, TRANSACTIONAL_ID_AUTHORIZATION_FAILED } from "./error-codes.js";
import { askCoordinator } from "./exchange.js";
import { END_TXN } from "./wire/api.js";
import { decodeEndTxn, encodeEndTxn } from "./wire/transaction-requests.js";

/** No role has it: brokers count producer ids upwards from 0. */
const NOBODYS: ProducerPair = { producerId: MAX_INT64, epoch: 0 };

/**
 * Learns whether this client may mint for a role, without minting. EndTxn takes the same right as InitProducerId, and the
 * broker checks it first. After that the coordinator compares the producer id and refuses this one, whatever the state of
 * the role's transaction; nothing is written, and no id comes into being (measured on Kafka 4.1.1: role unknown, idle, in
 * a transaction, and during its end).
 *
 * A conditional InitProducerId would not do: it creates an id that the coordinator does not know.
 *
 * @throws {KrabkaError} `UNAUTHORIZED`, `UNREACHABLE`, `TIMEOUT`, `ABORTED`, `CLOSED`. Any other answer means that the right is there.
 */
export async function requireWriteRight(map: ClusterMap, role: Role, deadline: Deadline): Promise<void> {
  const request = { api: END_TXN, encode: () => encodeEndTxn(role, NOBODYS, false), decode: decodeEndTxn };
  const what = `Asking to write for role ${JSON.stringify(role)}`;
  const { answer, error } = await askCoordinator(map, role, request, (code) => code, deadline);
  if (answer === undefined) {
    if (KrabkaError.is(error)) throw error;
    throw new KrabkaError("UNREACHABLE", `${what}: no answer`, { role, cause: error });
  }
  if (answer === TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    throw errorOf(answer, what, { role, right: onRole("Write", role) });
}
