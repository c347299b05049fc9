import { KrabkaError } from "@krabka/core";
import { errorOf } from "./native-errors.js";

/** The facility of librdkafka's log entries about connections that failed. */
const CONNECTION_FAILED = "FAIL";
/** `_ALL_BROKERS_DOWN`: says less than the failure of the connection that it follows. */
const ALL_DOWN = -187;
/** `_TRANSPORT`, `_SSL`, `_AUTHENTICATION`: a log entry before them has the details. */
const OF_CONNECTIONS: ReadonlySet<number> = new Set([-195, -181, -169]);
const WHAT = "Reaching a broker";

/**
 * What has kept a native client from its brokers since one last answered.
 *
 * librdkafka tries for ever, so a call that waits for it ends by its time limit and knows no reason. The reason is in log
 * entries, and its code in error events. librdkafka leaves out repetitions for 30 s, so the last ones are kept.
 */
export class ConnectionTrouble {
  #words: string | undefined;
  #error: KrabkaError | undefined;

  /** librdkafka logs a failure before it tells its code. */
  logged(facility: string, text: string): void {
    if (facility === CONNECTION_FAILED) this.#words = wordsOf(text);
  }

  failed(code: number, text: string): void {
    if (code === ALL_DOWN) return;
    const message = (OF_CONNECTIONS.has(code) ? this.#words : undefined) ?? text;
    const error = errorOf({ message, code }, WHAT);
    // A connection that is cut off in the middle of a login fails with `_AUTHENTICATION` too.
    const cutOff = error.code === "UNAUTHORIZED" && message.includes("Local: Broker transport failure");
    this.#error = cutOff ? new KrabkaError("UNREACHABLE", error.message, { cause: error }) : error;
  }

  /** A broker answered. */
  passed(): void {
    this.#words = undefined;
    this.#error = undefined;
  }

  /** What waiting does not mend. */
  get refusal(): KrabkaError | undefined {
    return this.#error?.code === "UNAUTHORIZED" ? this.#error : undefined;
  }

  /** Why a call that ran into its time limit got no answer. */
  get reason(): KrabkaError | undefined {
    if (this.#error !== undefined || this.#words === undefined) return this.#error;
    return new KrabkaError("UNREACHABLE", `${WHAT}: ${this.#words}`);
  }
}

/** Without the thread's name, and without the time that the attempt took. */
const wordsOf = (text: string): string =>
  text.replace(/^\[thrd:[^\]]*\]: /, "").replace(/ \(after \d+ms in state [^)]*\)$/, "");
