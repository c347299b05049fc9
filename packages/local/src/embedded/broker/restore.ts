import { damaged } from "../../errors.js";
import type { DurableLog } from "../../log/durable-log.js";
import { BrokerState } from "./broker-state.js";
import { decodeCommand } from "./request-codec.js";

/** The first record of a broker's log names what it is, so that no other service's log passes for one. */
export const FIRST_RECORD = "krabka embedded broker 2";

interface Restored {
  readonly state: BrokerState;
  /** Position of the next record. */
  readonly next: bigint;
}

/**
 * The state that a broker left: its newest checkpoint and the records since then. Undefined for a log without records.
 *
 * @throws {LocalError} `DAMAGED` where a stored state or command makes no sense
 */
export const restore = async (log: DurableLog): Promise<Restored | undefined> => {
  let state = restoreCheckpoint(log);
  let next = log.checkpoint?.position ?? 0n;
  for await (const record of log.read(next)) {
    try {
      if (state === undefined) state = begin(record.bytes);
      else replay(state, record.bytes);
    } catch (error) {
      throw damaged(record.place, `record ${record.position} makes no sense: ${(error as Error).message}`, error);
    }
    next = record.position + 1n;
  }
  if (state === undefined) return undefined;
  for (const partition of state.topics.partitions()) partition.publish(partition.end);
  return { state, next };
};

const restoreCheckpoint = ({ checkpoint }: DurableLog): BrokerState | undefined => {
  if (checkpoint === undefined) return undefined;
  try {
    return BrokerState.decode(checkpoint.state);
  } catch (error) {
    throw damaged(checkpoint.place, `the state makes no sense: ${(error as Error).message}`, error);
  }
};

const begin = (bytes: Uint8Array): BrokerState => {
  if (Buffer.from(bytes).toString("latin1") === FIRST_RECORD) return new BrokerState();
  throw new Error("this is the log of something else than an embedded broker, or of another version");
};

const replay = (state: BrokerState, bytes: Uint8Array): void => {
  const { answer, touched } = state.apply(decodeCommand(bytes));
  if (touched === undefined)
    throw new Error(`it was accepted once and is refused now: ${JSON.stringify(answer.status)}`);
};
