import type { Clock } from "@krabka/core";
import { deferred } from "../deferred.js";
import type { ApiName, Ask } from "./protocol.js";

/** One request on its way to a fake broker. */
export interface FakeCall<A extends ApiName = ApiName> {
  readonly api: A;
  readonly ask: Ask<A>;
  readonly broker: number;
  /** Who sends it; transports pass their own name. */
  readonly clientId: string;
}

/**
 * What happens to a request.
 *
 * - `lose-request`: it never arrives and the connection breaks.
 * - `lose-answer`: it is executed and the connection breaks before the answer.
 * - `drop-request`, `drop-answer`: the same in silence; the caller waits until its own time limit.
 * - `hold-request`: it arrives after `release`; `hold-answer`: it is executed at once, the answer comes after `release`.
 * - `delay`: it arrives `ms` later.
 * - `error`: it is not executed; the broker answers `code`.
 * - `run`: `before` is called and then the request is executed, which places another event right before it.
 */
export type FaultAction =
  | { readonly kind: "lose-request" | "lose-answer" | "drop-request" | "drop-answer" | "hold-request" | "hold-answer" }
  | { readonly kind: "delay"; readonly ms: number }
  | { readonly kind: "error"; readonly code: number }
  | { readonly kind: "run"; readonly before: () => void | Promise<void> };

export interface FaultRule {
  readonly api: ApiName;
  readonly action: FaultAction;
  /** Only for this transactional id. */
  readonly role?: string | undefined;
  /** Only from this client. */
  readonly clientId?: string | undefined;
  readonly matches?: ((call: FakeCall) => boolean) | undefined;
  /** How many requests it hits. @default 1 */
  readonly times?: number | undefined;
}

/** A fault that was injected. */
export interface InjectedFault {
  readonly hits: number;
  /** Resolves when the first request was hit. */
  readonly hit: Promise<void>;
  /** Lets go what a `hold-…` fault holds; further requests pass. */
  release(): void;
  /** Hits no further request; what is held stays held. */
  remove(): void;
}

class Fault implements InjectedFault {
  readonly rule: FaultRule;
  readonly #hit = deferred<void>();
  readonly #released = deferred<void>();
  #left: number;
  hits = 0;

  constructor(rule: FaultRule) {
    this.rule = rule;
    this.#left = rule.times ?? 1;
  }

  get hit(): Promise<void> {
    return this.#hit.promise;
  }

  get released(): Promise<void> {
    return this.#released.promise;
  }

  takes(call: FakeCall): boolean {
    const { api, role, clientId, matches } = this.rule;
    if (this.#left <= 0 || api !== call.api) return false;
    if (role !== undefined && (call.ask as { transactionalId?: string }).transactionalId !== role) return false;
    if (clientId !== undefined && clientId !== call.clientId) return false;
    if (matches !== undefined && !matches(call)) return false;
    this.#left -= 1;
    this.hits += 1;
    this.#hit.resolve();
    return true;
  }

  release(): void {
    this.remove();
    this.#released.resolve();
  }

  remove(): void {
    this.#left = 0;
  }
}

/** How a faulty request goes on. */
export interface FaultPlan {
  /** Runs before the request is executed. Rejects or never settles where it does not arrive. */
  readonly before: () => Promise<void>;
  readonly errorCode: number | undefined;
  /** Runs between execution and answer. */
  readonly after: () => Promise<void>;
}

const nothing = async (): Promise<void> => {};
const silence = (): Promise<void> => new Promise<void>(() => {});

/** The faults of one cluster; the first rule that matches a request takes it. */
export class Faults {
  readonly #clock: Clock;
  readonly #connectionLost: (call: FakeCall) => Error;
  #faults: Fault[] = [];

  constructor(clock: Clock, connectionLost: (call: FakeCall) => Error) {
    this.#clock = clock;
    this.#connectionLost = connectionLost;
  }

  inject(rule: FaultRule): InjectedFault {
    const fault = new Fault(rule);
    this.#faults.push(fault);
    return fault;
  }

  /** Removes all rules and lets go what they hold. */
  clear(): void {
    for (const fault of this.#faults) fault.release();
    this.#faults = [];
  }

  planFor(call: FakeCall): FaultPlan | undefined {
    const fault = this.#faults.find((one) => one.takes(call));
    if (fault === undefined) return undefined;
    const { action } = fault.rule;
    const cut = () => Promise.reject(this.#connectionLost(call));
    const plan = (part: Partial<FaultPlan>): FaultPlan => ({
      before: nothing,
      errorCode: undefined,
      after: nothing,
      ...part,
    });
    switch (action.kind) {
      case "lose-request":
        return plan({ before: cut });
      case "lose-answer":
        return plan({ after: cut });
      case "drop-request":
        return plan({ before: silence });
      case "drop-answer":
        return plan({ after: silence });
      case "hold-request":
        return plan({ before: () => fault.released });
      case "hold-answer":
        return plan({ after: () => fault.released });
      case "delay":
        return plan({ before: () => new Promise((resolve) => this.#clock.setTimer(action.ms, resolve)) });
      case "error":
        return plan({ errorCode: action.code });
      case "run":
        return plan({ before: async () => action.before() });
    }
  }
}
