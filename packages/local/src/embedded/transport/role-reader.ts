import {
  type CallOptions,
  type CoordinationRecord,
  type Deadline,
  decodeEntry,
  type FeedListener,
  KrabkaError,
  type RoleFeed,
} from "@krabka/core";
import type { Slice, StoredRecord } from "../broker/partition-log.js";
import { decodeRecord } from "../broker/record-bytes.js";
import type { BrokerClient, ClientFeed } from "../link/broker-client.js";
import type { FeedSpec } from "../link/port.js";

/** A role's feed. All that a broker shows is durable and decided, so nothing is ever uncommitted. */
export class RoleReader implements RoleFeed {
  readonly #feed: ClientFeed;
  readonly #listener: FeedListener;
  readonly #limitOf: (options: CallOptions | undefined) => Deadline;
  readonly #onClose: () => void;
  /** A replay brings records again that were reported already. */
  #reportedUpTo = -1n;
  #ended: KrabkaError | undefined;

  constructor(
    client: BrokerClient,
    spec: FeedSpec,
    listener: FeedListener,
    limitOf: (options: CallOptions | undefined) => Deadline,
    onClose: () => void,
  ) {
    this.#listener = listener;
    this.#limitOf = limitOf;
    this.#onClose = onClose;
    this.#feed = client.follow(spec, {
      onRecords: (slice) => this.#take(slice),
      onReset: () => {
        if (this.#ended === undefined) this.#listener.onReset();
      },
      onEnded: (error) => {
        if (this.#ended !== undefined) return;
        this.#ended = error;
        this.#listener.onError(error);
      },
      onInterrupted: (error) => {
        if (this.#ended === undefined) this.#listener.onError(error);
      },
    });
  }

  async sync(options?: CallOptions): Promise<bigint> {
    const limit = this.#limitOf(options);
    if (this.#ended !== undefined) throw this.#ended;
    return this.#feed.sync(limit);
  }

  close(): void {
    this.end(new KrabkaError("CLOSED", "The feed was closed"));
  }

  end(error: KrabkaError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#feed.close();
    this.#onClose();
  }

  #take({ records }: Slice): void {
    const decoded: CoordinationRecord[] = [];
    for (const record of records) {
      try {
        decoded.push(decode(record));
      } catch (error) {
        if (record.offset <= this.#reportedUpTo) continue;
        this.#reportedUpTo = record.offset;
        this.#listener.onMalformed(record.offset, error as Error);
      }
    }
    if (decoded.length > 0 && this.#ended === undefined) this.#listener.onRecords(decoded);
  }
}

const decode = ({ bytes, offset, atMs }: StoredRecord): CoordinationRecord =>
  Object.assign(decodeEntry(decodeRecord(bytes)), { offset, appendedAtMs: atMs });
