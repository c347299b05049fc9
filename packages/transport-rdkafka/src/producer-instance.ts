import { type Deadline, KrabkaError } from "@krabka/core";
import type { Lane } from "./call-gate.js";
import { ConnectionTrouble } from "./connection-trouble.js";
import {
  createProducer,
  type NativeCallbacks,
  type NativeMetadata,
  type NativeProducer,
  type RdKafkaConfig,
} from "./native-binding.js";
import { CLIENT_CLOSED, codeOf, refusedSettings } from "./native-errors.js";
import { type Answer, NativeLifetime } from "./native-lifetime.js";
import { Statistics } from "./statistics.js";

/** What became of one record: its offset, or why it was not acknowledged. */
export type Delivery = { readonly offset: bigint } | { readonly code: number };

export interface ProducerMessage {
  readonly topic: string;
  readonly partition: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly Readonly<Record<string, string>>[];
  readonly timestampMs: number;
}

interface StatisticsWaiter {
  look(statistics: Statistics): void;
  /** None will come any more. */
  end(): void;
}

/** How often a quiet producer hands over what it has to say. */
const IDLE_POLL_MS = 100;
const BUSY_POLL_MS = 1;
/** Longest stay of one question for brokers on a thread of libuv's pool. */
const FIRST_METADATA_MS = 250;
const NEXT_METADATA_MS = 500;

/** One native producer from its making to its end. */
export class ProducerInstance {
  readonly trouble = new ConnectionTrouble();
  readonly #native: NativeProducer;
  readonly #lifetime = new NativeLifetime();
  readonly #deliveries = new Map<number, (delivery: Delivery) => void>();
  readonly #callbacks: NativeCallbacks;
  readonly #statisticsWaiters = new Set<StatisticsWaiter>();
  readonly #logListeners = new Set<(facility: string, text: string) => void>();
  readonly #onProblem: (code: number, text: string) => void;
  #latestStatistics = "";
  #bornAtMs = 0;
  #lastReportId = 0;
  #pump: NodeJS.Timeout | undefined;
  #pumpMs = 0;
  #busy = 0;
  #connected = false;
  #reached = false;

  /**
   * @param onProblem is told what librdkafka says of its connections.
   * @throws {KrabkaError} `INVALID_ARGUMENT` where librdkafka refuses a setting
   */
  constructor(
    config: RdKafkaConfig,
    topicConfig: RdKafkaConfig,
    onProblem: (code: number, text: string) => void = () => undefined,
  ) {
    this.#native = createProducer(config, topicConfig);
    this.#onProblem = onProblem;
    this.#callbacks = {
      global: {},
      topic: {},
      event: {
        event_cb: (kind, event) => this.#heard(kind, event),
        delivery_cb: (error, { opaque, offset }) => {
          const deliver = this.#deliveries.get(opaque);
          this.#deliveries.delete(opaque);
          if (error === null) this.trouble.passed();
          deliver?.(error === null ? { offset: BigInt(offset) } : { code: codeOf({ message: error.message }) });
        },
      },
    };
  }

  get isClosed(): boolean {
    return this.#lifetime.isClosed;
  }

  /** The text of the last statistics, to be parsed only where they turn out to matter; empty before the first. */
  get latestStatisticsText(): string {
    return this.#latestStatistics;
  }

  /** Makes librdkafka's client and waits until a broker answers. */
  async connect(deadline: Deadline): Promise<void> {
    deadline.waitsFor(this.trouble);
    if (!this.#connected) {
      const answer = await this.#lifetime.attempt("quick", deadline, (done) => {
        this.#native.configureCallbacks(true, this.#callbacks);
        this.#bornAtMs = performance.now();
        this.#connected = true;
        this.#native.connect(done);
      });
      if (!answer.ok) throw refusedSettings(answer.error);
      this.#schedule();
    }
    if (!this.#reached) await this.#reachBroker(deadline);
    this.#reached = true;
  }

  async #reachBroker(deadline: Deadline): Promise<void> {
    for (let limitMs = FIRST_METADATA_MS; ; limitMs = NEXT_METADATA_MS) {
      const timeout = Math.ceil(Math.max(1, Math.min(limitMs, deadline.remainingMs)));
      const lane = limitMs === FIRST_METADATA_MS ? "quick" : "patient";
      try {
        await this.#lifetime.call<NativeMetadata>(lane, deadline, "Reaching a broker", (done) =>
          this.#native.getMetadata({ allTopics: false, timeout }, done),
        );
        this.trouble.passed();
        return;
      } catch (error) {
        if (!KrabkaError.is(error) || error.code !== "UNREACHABLE") throw error;
        if (this.trouble.refusal !== undefined) throw this.trouble.refusal;
        await deadline.pause(20);
      }
    }
  }

  /** @param mayBegin is asked when the call has its slot; if false, the call is not made and the answer is undefined. */
  async initTransactions(
    timeoutMs: number,
    deadline: Deadline,
    mayBegin: () => boolean,
  ): Promise<Answer<unknown> | undefined> {
    let begun = true;
    const answer = await this.#lifetime.attempt("quick", deadline, (done) => {
      begun = mayBegin();
      if (begun) this.#native.initTransactions(timeoutMs, done);
      else done(null, undefined);
    });
    return begun ? answer : undefined;
  }

  beginTransaction(deadline: Deadline): Promise<Answer<unknown>> {
    return this.#lifetime.attempt("quick", deadline, (done) => this.#native.beginTransaction(done));
  }

  commitTransaction(lane: Lane, timeoutMs: number, deadline: Deadline): Promise<Answer<unknown>> {
    return this.#lifetime.attempt(lane, deadline, (done) => this.#native.commitTransaction(timeoutMs, done));
  }

  abortTransaction(lane: Lane, timeoutMs: number, deadline: Deadline): Promise<Answer<unknown>> {
    return this.#lifetime.attempt(lane, deadline, (done) => this.#native.abortTransaction(timeoutMs, done));
  }

  /** Hands a record to librdkafka. @returns 0, or the code for which it was not taken. */
  produce(message: ProducerMessage, deliver: (delivery: Delivery) => void): number {
    if (this.isClosed) return CLIENT_CLOSED;
    const { topic, partition, value, key, timestampMs, headers } = message;
    this.#lastReportId += 1;
    const id = this.#lastReportId;
    this.#deliveries.set(id, deliver);
    const code = this.#native.produce(topic, partition, placed(value), placed(key), timestampMs, id, headers);
    if (code !== 0) this.#deliveries.delete(id);
    return code;
  }

  /** Statistics that were written after this call. */
  async freshStatistics(deadline: Deadline): Promise<Statistics> {
    // What is on its way may be older. Their age counts from the making of the client, which came after `#bornAtMs`.
    const ageMs = performance.now() - this.#bornAtMs;
    return await this.statisticsUntil(deadline, (statistics) => statistics.clientAgeMs >= ageMs);
  }

  /** Waits for statistics that pass. @throws {KrabkaError} `CLOSED` too */
  async statisticsUntil(deadline: Deadline, pass: (statistics: Statistics) => boolean): Promise<Statistics> {
    let stop = (): void => undefined;
    const found = new Promise<Statistics>((resolve, reject) => {
      const waiter: StatisticsWaiter = {
        look: (statistics) => {
          if (pass(statistics)) resolve(statistics);
        },
        end: () => reject(new KrabkaError("CLOSED", "The native client was closed")),
      };
      if (this.isClosed) waiter.end();
      this.#statisticsWaiters.add(waiter);
      stop = () => this.#statisticsWaiters.delete(waiter);
    });
    return await this.whileBusy(() => deadline.race(found)).finally(() => stop());
  }

  /** Tells what librdkafka logs until the returned function is called. */
  onLog(listener: (facility: string, text: string) => void): () => void {
    this.#logListeners.add(listener);
    return () => this.#logListeners.delete(listener);
  }

  /** Asks librdkafka every millisecond for what it has to say while `work` runs. */
  async whileBusy<T>(work: () => Promise<T>): Promise<T> {
    this.#busy += 1;
    this.#schedule();
    try {
      return await work();
    } finally {
      this.#busy -= 1;
      this.#schedule();
    }
  }

  /** Ends the client once no call is under way. What was not sent is dropped. Idempotent; never rejects. */
  close(): Promise<void> {
    for (const { end } of this.#statisticsWaiters) end();
    return this.#lifetime.close((done) => {
      clearInterval(this.#pump);
      const freed = (): void => {
        if (this.#connected) this.#native.configureCallbacks(false, this.#callbacks);
        for (const deliver of this.#deliveries.values()) deliver({ code: CLIENT_CLOSED });
        this.#deliveries.clear();
        done();
      };
      if (this.#connected) this.#native.disconnect(freed);
      else freed();
    });
  }

  #schedule(): void {
    const intervalMs = this.#busy > 0 ? BUSY_POLL_MS : IDLE_POLL_MS;
    if (!this.#connected || this.isClosed || intervalMs === this.#pumpMs) return;
    clearInterval(this.#pump);
    this.#pumpMs = intervalMs;
    this.#pump = setInterval(() => this.#native.poll(), intervalMs);
  }

  #heard(kind: string, event: { readonly message: string; readonly fac?: string }): void {
    if (kind === "stats") {
      this.#latestStatistics = event.message;
      if (this.#statisticsWaiters.size === 0) return;
      const statistics = Statistics.parse(event.message);
      for (const { look } of [...this.#statisticsWaiters]) look(statistics);
    } else if (kind === "log") {
      this.trouble.logged(event.fac ?? "", event.message);
      for (const listener of [...this.#logListeners]) listener(event.fac ?? "", event.message);
    } else if (kind === "error") {
      const code = codeOf({ message: event.message });
      this.trouble.failed(code, event.message);
      this.#onProblem(code, event.message);
    }
  }
}

/** Empty, but somewhere: of an empty buffer that lies nowhere node-rdkafka makes a null, and so of an empty value a tombstone. */
const EMPTY = Buffer.alloc(1).subarray(0, 0);

const placed = <T extends Uint8Array | null>(bytes: T): T | Buffer => (bytes?.length === 0 ? EMPTY : bytes);
