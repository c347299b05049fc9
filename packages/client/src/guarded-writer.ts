import {
  encodeEntry,
  encodeUtf8,
  type Header,
  KrabkaError,
  type OutgoingRecord,
  type RecordPosition,
  TOKEN_HEADER,
  type WriteOutcome,
} from "@krabka/core";
import { type Logger, publish } from "./events.js";
import { Limit, type LimitOptions } from "./limits.js";
import { Loss } from "./loss.js";
import type { Tenancy } from "./tenancy.js";
import { toOutgoing, type WriteRecord } from "./write.js";

export interface GuardedWriterOptions {
  /** Whether records carry the token in a header. */
  readonly tokenHeader: boolean;
  readonly maxQueuedWrites: number;
  readonly coordinationTopic: string;
}

/** Writes the caller's own records in the role's transaction, in the order of the calls, and tells each the truth. */
export class GuardedWriter {
  readonly #tenancy: Tenancy;
  readonly #options: GuardedWriterOptions;
  readonly #logger: Logger;

  constructor(tenancy: Tenancy, options: GuardedWriterOptions, logger: Logger) {
    this.#tenancy = tenancy;
    this.#options = options;
    this.#logger = logger;
  }

  async write(given: readonly WriteRecord[], options: LimitOptions): Promise<readonly RecordPosition[]> {
    const { queue, who } = this.#tenancy;
    this.#tenancy.requireLeading();
    if (queue.waiting >= this.#options.maxQueuedWrites) {
      throw new KrabkaError("QUEUE_FULL", `${queue.waiting} writes wait already; await some of them first`, who);
    }
    // Bad input is told before anything waits. The bytes are taken now: the caller may reuse its buffers.
    const records = given.map((record) => toOutgoing(record, this.#options.coordinationTopic));
    const limit = new Limit(this.#tenancy.clock, "write", options);
    try {
      return await queue.run(() => this.#commit(records, limit), { signal: limit.signal });
    } finally {
      limit.dispose();
    }
  }

  async #commit(given: readonly OutgoingRecord[], limit: Limit): Promise<readonly RecordPosition[]> {
    const { clock } = this.#tenancy;
    this.#tenancy.requireActive();
    if (this.#tenancy.mustRegain) {
      await this.#regain(limit);
      this.#tenancy.requireActive();
    }
    limit.throwIfReached();
    const { who } = this.#tenancy;
    const stamp = this.#stamp();
    const records = given.map((record) => ({ ...record, headers: [...record.headers, ...stamp] }));
    const rider = this.#rider(records);
    const sinceMs = clock.monotonicMs();
    const outcome = await this.#settled([...records, ...rider], limit);
    if (outcome.status === "committed" && rider.length > 0) this.#tenancy.renewed({ token: who.token, sinceMs });
    const durationMs = clock.monotonicMs() - sinceMs;
    publish("krabka.write", { ...who, records: records.length, durationMs, outcome: outcome.status });
    return this.#truth(outcome, who).slice(0, records.length);
  }

  /** Nothing of the write was sent yet, whatever becomes of the new epoch. */
  async #regain(limit: Limit): Promise<void> {
    try {
      await this.#tenancy.regainWithin(limit);
    } catch (error) {
      const { lostSignal, who } = this.#tenancy;
      if (error === lostSignal.reason || error === limit.signal.reason) throw error;
      const message = `The write for role ${who.role} was not sent: no new epoch after an answer was lost`;
      throw new KrabkaError("NOT_COMMITTED", message, { ...who, cause: error });
    }
  }

  async #settled(records: readonly OutgoingRecord[], limit: Limit): Promise<WriteOutcome> {
    const { reign } = this.#tenancy;
    let outcome: WriteOutcome;
    try {
      const timeoutMs = this.#tenancy.callMs(limit.restMs);
      outcome = await reign.session.commit(records, { signal: limit.signal, timeoutMs });
    } catch (error) {
      throw this.#tenancy.after(error);
    }
    if (outcome.status !== "unknown" || this.#tenancy.restMs <= 0) return outcome;
    try {
      return (await this.#tenancy.regainWithin(limit)) ?? outcome;
    } catch (error) {
      if (error === limit.signal.reason) return outcome;
      const { role, member } = this.#tenancy.who;
      this.#logger.warn({ role, member, err: error }, "an unknown write could not be settled");
      return outcome;
    }
  }

  #stamp(): readonly Header[] {
    return this.#options.tokenHeader ? [{ key: TOKEN_HEADER, value: encodeUtf8(String(this.#tenancy.token)) }] : [];
  }

  /** A renewal that is due anyway rides in the caller's transaction. */
  #rider(records: readonly OutgoingRecord[]): readonly OutgoingRecord[] {
    const { reign, registrar, renewDue, token } = this.#tenancy;
    if (records.length === 0 || !reign.piggybacks || !renewDue) return [];
    return [{ ...registrar.target, ...encodeEntry(reign.renewalEntry(token)) }];
  }

  #truth(outcome: WriteOutcome, who: Tenancy["who"]): readonly RecordPosition[] {
    switch (outcome.status) {
      case "committed":
        return outcome.positions;
      case "fenced":
        this.#tenancy.fenced(outcome.cause);
        throw Loss.fenced(who, outcome.cause).error;
      case "aborted": {
        const message = `The write for role ${who.role} was not committed: ${outcome.cause.message}`;
        throw new KrabkaError("NOT_COMMITTED", message, { ...who, cause: outcome.cause });
      }
      case "unknown": {
        const message = `Whether the write for role ${who.role} was committed is not known: ${outcome.cause.message}`;
        throw new KrabkaError("UNKNOWN_OUTCOME", message, { ...who, cause: outcome.cause });
      }
    }
  }
}
