import type { Deadline } from "@krabka/core";
import { type ClientSettings, HEARTBEAT_MS } from "./client-config.js";
import type { ConnectionTrouble } from "./connection-trouble.js";
import {
  type Callback,
  createConsumer,
  type NativeCallbacks,
  type NativeConsumer,
  type NativeEof,
  type NativeError,
  type NativeMessage,
  type NativeMetadata,
  type NativePosition,
  type NativeWatermarks,
} from "./native-binding.js";
import { codeOf, errorOf, refusedSettings } from "./native-errors.js";
import { NativeLifetime } from "./native-lifetime.js";

/** Longest stay of one question on a thread of libuv's pool. */
const ASK_MS = 500;
/** How long the reading thread may wait for records, and so how long its end may hold up the event loop. */
const LOOP_MS = 50;
/** Turns of the event loop without a sign of life, not time: the process may have been paused. */
const HEARTBEATS_MISSING = 4;
/** How long a record that the thread has read may take until it is handed over. */
export const HAND_OVER_MS = 20;
const LAST_HAND_OVERS = 4;

export interface ConsumerListener {
  onMessage(message: NativeMessage): void;
  /** A partition was read up to `offset`, markers included. */
  onEnd(eof: NativeEof): void;
  /** What librdkafka says of its connections, or of a topic that it can't read. */
  onProblem(code: number, text: string): void;
}

export interface InstanceListener extends ConsumerListener {
  /** The reading thread has ended, though nobody asked it to. The reason is told as a problem while it is closed. */
  onStopped(consumer: ConsumerInstance): void;
}

/** One native consumer of one topic from its making to its end. Reads on a thread of its own. */
export class ConsumerInstance {
  readonly #native: NativeConsumer;
  readonly #lifetime = new NativeLifetime();
  readonly #topic: string;
  readonly #listener: InstanceListener;
  readonly #trouble: ConnectionTrouble;
  readonly #callbacks: NativeCallbacks;
  #started: Promise<void> | undefined;
  readonly #assigned = new Set<number>();
  #running = false;
  #heartbeats = 0;
  #watch: NodeJS.Timeout | undefined;

  /** @throws {KrabkaError} `INVALID_ARGUMENT` where librdkafka refuses a setting */
  constructor(settings: ClientSettings, topic: string, trouble: ConnectionTrouble, listener: InstanceListener) {
    this.#native = createConsumer(settings.global, settings.topic);
    this.#topic = topic;
    this.#trouble = trouble;
    this.#listener = listener;
    this.#callbacks = {
      global: {},
      topic: {},
      event: {
        event_cb: (kind, event) => {
          // Log entries come from other threads than the reading one.
          if (kind === "log") trouble.logged(event.fac ?? "", event.message);
          else this.#heartbeats += 1;
          if (kind !== "error") return;
          const code = codeOf({ message: event.message });
          trouble.failed(code, event.message);
          listener.onProblem(code, event.message);
        },
      },
    };
  }

  /** Makes librdkafka's client; contacts no broker. Every call shares the first one that did not fail. */
  start(deadline: Deadline): Promise<void> {
    this.#started ??= this.#start(deadline).catch((error: unknown) => {
      this.#started = undefined;
      throw error;
    });
    return this.#started;
  }

  async #start(deadline: Deadline): Promise<void> {
    const answer = await this.#lifetime.attempt("quick", deadline, (done) => {
      this.#native.configureCallbacks(true, this.#callbacks);
      this.#running = true;
      this.#native.connect(done);
    });
    if (!answer.ok) throw refusedSettings(answer.error);
    if (this.#lifetime.isClosed) return;
    this.#native.consumeLoop(LOOP_MS, 0, (error, message, eof, warningCode) => {
      if (error) this.#listener.onProblem(codeOf({ message: error.message }), error.message);
      if (this.#lifetime.isClosed) return;
      if (message) this.#listener.onMessage(message);
      else if (eof) this.#listener.onEnd(eof);
      else if (typeof warningCode === "number") this.#listener.onProblem(warningCode, "");
    });
    this.#watchThread();
  }

  /** Statistics are handed over by the reading thread, so they show that it lives. */
  #watchThread(): void {
    let seen = -1;
    let missing = 0;
    this.#watch = setInterval(() => {
      missing = this.#heartbeats === seen ? missing + 1 : 0;
      seen = this.#heartbeats;
      if (missing < HEARTBEATS_MISSING) return;
      clearInterval(this.#watch);
      this.#listener.onStopped(this);
    }, HEARTBEAT_MS);
  }

  /** Reads a partition from an offset on. The client must have started. */
  assign(partition: number, offset: bigint): void {
    if (this.#lifetime.isClosed || this.#assigned.has(partition)) return;
    this.#native.incrementalAssign([{ topic: this.#topic, partition, offset: Number(offset) }]);
    this.#assigned.add(partition);
  }

  unassign(partition: number): void {
    if (this.#lifetime.isClosed || !this.#assigned.delete(partition)) return;
    this.#native.incrementalUnassign([{ topic: this.#topic, partition }]);
  }

  /** Brokers and, with a topic, its partitions; none of a topic that does not exist or may not be seen. */
  async metadata(topic: string, deadline: Deadline): Promise<NativeMetadata> {
    return await this.#ask(deadline, `Looking topic ${JSON.stringify(topic)} up`, (timeout, done) =>
      this.#native.getMetadata({ topic, allTopics: false, timeout }, done),
    );
  }

  /** Begin and end of a partition as this consumer sees it: one of committed records has the last stable offset as end. */
  async bounds(topic: string, partition: number, deadline: Deadline): Promise<{ begin: bigint; end: bigint }> {
    const what = `Asking for the end of partition ${partition} of topic ${JSON.stringify(topic)}`;
    const { lowOffset, highOffset } = await this.#ask<NativeWatermarks>(deadline, what, (timeout, done) =>
      this.#native.queryWatermarkOffsets(topic, partition, timeout, done),
    );
    return { begin: BigInt(lowOffset), end: BigInt(highOffset) };
  }

  /** Why the brokers refuse to tell where this consumer's group stands in a topic; undefined where they don't. */
  async refusalOf(topic: string, deadline: Deadline): Promise<NativeError | undefined> {
    const what = `Asking about topic ${JSON.stringify(topic)}`;
    const [position] = await this.#ask<readonly NativePosition[]>(deadline, what, (timeout, done) =>
      this.#native.committed([{ topic, partition: 0 }], timeout, done),
    );
    return position instanceof Error ? position : undefined;
  }

  /** Ends the client once no call is under way and nothing comes in any more. Idempotent; never rejects. */
  close(): Promise<void> {
    return this.#lifetime.close((done) => void this.#free().then(done));
  }

  /**
   * node-rdkafka drops what its reading thread read and did not hand over yet, and librdkafka waits for ever for the
   * release of just that. So reading ends first, and then the thread gets time to hand over the last record.
   */
  async #free(): Promise<void> {
    clearInterval(this.#watch);
    if (!this.#running) return;
    const partitions = [...this.#assigned].map((partition) => ({ topic: this.#topic, partition }));
    if (partitions.length > 0) this.#native.incrementalUnassign(partitions);
    // Several timers: one might fire at once after the process was stopped.
    for (let turn = 0; turn < LAST_HAND_OVERS; turn++) {
      await new Promise((resolve) => setTimeout(resolve, HAND_OVER_MS));
    }
    await new Promise<void>((resolve) => this.#native.disconnect(() => resolve()));
    this.#native.configureCallbacks(false, this.#callbacks);
  }

  /** Asks in slices, so that no thread of the pool is held for long, until there is an answer. */
  async #ask<T>(deadline: Deadline, what: string, start: (timeoutMs: number, done: Callback<T>) => void): Promise<T> {
    deadline.waitsFor(this.#trouble);
    await deadline.race(this.start(deadline));
    for (let attempt = 0; ; attempt++) {
      const limitMs = Math.ceil(Math.max(1, Math.min(ASK_MS, deadline.remainingMs)));
      const answer = await this.#lifetime.attempt<T>(attempt === 0 ? "quick" : "patient", deadline, (done) =>
        start(limitMs, done),
      );
      if (answer.ok) {
        this.#trouble.passed();
        return answer.value;
      }
      const error = errorOf(answer.error, what);
      if (error.code !== "UNREACHABLE") throw error;
      if (this.#trouble.refusal !== undefined) throw this.#trouble.refusal;
      await deadline.pause(20);
    }
  }
}
