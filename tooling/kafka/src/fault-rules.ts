/** A request on its way to a broker. */
export interface ProxiedRequest {
  readonly apiKey: number;
  readonly apiVersion: number;
  readonly brokerId: number;
  /** All that follows the client id: the tagged fields of a flexible header, then the request itself. */
  readonly body: Buffer;
}

/**
 * - `drop-answer`: the broker executes the request; its answer never arrives, the connection stays open.
 * - `cut-before`: the connection ends; neither this request nor a later one of the connection reaches the broker.
 * - `cut-after`: the broker executes the request; the connection ends instead of the answer.
 * - `delayRequestMs`, `delayAnswerMs`: nothing of the same connection and direction overtakes what is delayed.
 * - `hold`: the request, and all that follows on its connection, waits for {@link FaultHandle.release}; it reaches the
 *   broker after that even when the client has gone.
 * - `answer`: the broker is not asked. The made-up answer is all that follows the correlation id: in flexible versions
 *   it begins with the tagged fields of the header.
 */
export type FaultAction =
  | "drop-answer"
  | "cut-before"
  | "cut-after"
  | { readonly delayRequestMs: number }
  | { readonly delayAnswerMs: number }
  | { readonly hold: true }
  | { readonly answer: (request: ProxiedRequest) => Buffer };

export interface FaultRule {
  readonly apiKey: number;
  /** How many requests it applies to, over all brokers. @default 1 */
  readonly times?: number;
  readonly when?: (request: ProxiedRequest) => boolean;
  readonly action: FaultAction;
}

export interface FaultHandle {
  /** How many requests the fault has struck. */
  readonly hits: number;
  /**
   * Resolves when the fault strikes first: a request is held, delayed or cut off; for `drop-answer`, `cut-after` and
   * `delayAnswerMs`, when the answer has come back, so that the broker has executed the request.
   */
  readonly hit: Promise<void>;
  /** The broker's own answer to the first struck request that it answers; all that follows the correlation id. */
  readonly brokerAnswer: Promise<Buffer>;
  /** Lets held requests go to the broker, and holds no more. */
  release(): void;
  /** Strikes no further request. One that is held stays so until {@link release}. */
  cancel(): void;
}

export class Fault implements FaultHandle {
  readonly action: FaultAction;
  readonly hit: Promise<void>;
  readonly brokerAnswer: Promise<Buffer>;
  readonly released: Promise<void>;
  readonly #rule: FaultRule;
  #left: number;
  #hits = 0;
  #resolveHit: () => void = () => {};
  #resolveAnswer: (answer: Buffer) => void = () => {};
  #resolveReleased: () => void = () => {};

  constructor(rule: FaultRule) {
    this.action = rule.action;
    this.#rule = rule;
    this.#left = rule.times ?? 1;
    this.hit = new Promise((resolve) => {
      this.#resolveHit = resolve;
    });
    this.brokerAnswer = new Promise((resolve) => {
      this.#resolveAnswer = resolve;
    });
    this.released = new Promise((resolve) => {
      this.#resolveReleased = resolve;
    });
  }

  get hits(): number {
    return this.#hits;
  }

  /** True when the fault is for this request, which uses up one of its times. */
  claims(request: ProxiedRequest): boolean {
    const { apiKey, when } = this.#rule;
    if (this.#left === 0 || apiKey !== request.apiKey || when?.(request) === false) return false;
    this.#left -= 1;
    return true;
  }

  struck(): void {
    this.#hits += 1;
    this.#resolveHit();
  }

  answered(answer: Buffer): void {
    this.#resolveAnswer(answer);
  }

  release(): void {
    this.cancel();
    this.#resolveReleased();
  }

  cancel(): void {
    this.#left = 0;
  }
}

/** The rules of a proxy, in the order in which they were given, and the count of what passed. */
export class FaultRules {
  readonly #faults = new Set<Fault>();
  readonly #requests = new Map<number, number>();

  inject(rule: FaultRule): FaultHandle {
    const fault = new Fault(rule);
    this.#faults.add(fault);
    return fault;
  }

  /** Counts a request; the first rule that claims it decides its fate. */
  arrived(request: ProxiedRequest): Fault | undefined {
    this.#requests.set(request.apiKey, this.requests(request.apiKey) + 1);
    for (const fault of this.#faults) if (fault.claims(request)) return fault;
    return undefined;
  }

  requests(apiKey: number): number {
    return this.#requests.get(apiKey) ?? 0;
  }

  reset(): void {
    for (const fault of this.#faults) fault.release();
    this.#faults.clear();
  }
}
