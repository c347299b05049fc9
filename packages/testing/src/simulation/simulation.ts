import { ManualClock } from "../manual-clock.js";
import { SeededRandom } from "./seeded-random.js";
import { Trace } from "./trace.js";

/** Something that can happen. The greater its weight beside the others', the more often it does. */
export interface SimulatedEvent {
  readonly name: string;
  readonly weight: number;
  /** @returns what happened, for the trace; undefined when there was nothing for it to happen to */
  run(): string | undefined;
}

/** Something that holds at every moment. */
export interface Invariant {
  readonly name: string;
  /** @throws when it does not hold */
  check(): void;
}

export interface SimulationOptions {
  readonly seed: number;
  /** Lines of the trace in the message of a failure. @default 80 */
  readonly tailLines?: number | undefined;
}

/** The environment variables by which a run is repeated and lengthened. */
export const SEED_VARIABLE = "KRABKA_SEED";
export const SEEDS_VARIABLE = "KRABKA_SEEDS";

/** An invariant was broken, or the run itself failed. The message says where and how to see it again. */
export class SimulationFailure extends Error {
  constructor(seed: number, what: string, trace: string, cause: unknown) {
    super(`${what}\nReplay it with ${SEED_VARIABLE}=${seed}. The last transitions:\n${trace}`, { cause });
    this.name = "SimulationFailure";
  }
}

/**
 * A run in which a seed decides what happens and when. Time is virtual, and everything draws from `random`, so a seed
 * gives the same run each time.
 *
 * Jitter in the code under test draws from `Math.random`; `whole` puts a seeded one in its place while it runs.
 */
export class Simulation {
  readonly seed: number;
  readonly clock = new ManualClock();
  readonly random: SeededRandom;
  readonly trace: Trace;
  readonly #tailLines: number;
  readonly #invariants: Invariant[] = [];

  constructor({ seed, tailLines = 80 }: SimulationOptions) {
    this.seed = seed;
    this.random = new SeededRandom(seed);
    this.trace = new Trace(() => this.clock.monotonicMs());
    this.#tailLines = tailLines;
  }

  /** From now on it is checked after each step. */
  always(invariant: Invariant): void {
    this.#invariants.push(invariant);
  }

  /** Checks all invariants now. */
  check(): void {
    for (const { name, check } of this.#invariants) {
      try {
        check();
      } catch (error) {
        throw new Error(`Broken: ${name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
      }
    }
  }

  /** Lets time pass in steps, with a check after each. */
  async advance(ms: number, stepMs = ms): Promise<void> {
    for (let leftMs = ms; leftMs > 0; leftMs -= stepMs) {
      await this.clock.advance(Math.min(stepMs, leftMs));
      this.check();
    }
  }

  /** Events of random kinds at random instants, for `ms`. */
  async storm(events: readonly SimulatedEvent[], ms: number, meanPauseMs: number): Promise<void> {
    const total = events.reduce((sum, { weight }) => sum + weight, 0);
    const endsAtMs = this.clock.monotonicMs() + ms;
    while (this.clock.monotonicMs() < endsAtMs) {
      await this.advance(Math.max(0.1, -Math.log(1 - this.random.next()) * meanPauseMs));
      let drawn = this.random.next() * total;
      const event = events.find(({ weight }) => {
        drawn -= weight;
        return drawn < 0;
      });
      const what = event?.run();
      if (event !== undefined && what !== undefined) this.trace.add("event", `${event.name}: ${what}`);
      this.check();
    }
  }

  /** Runs the whole of a scenario. @throws {SimulationFailure} */
  async whole(scenario: () => Promise<void>): Promise<void> {
    const { random } = Math;
    const jitter = this.random.fork();
    Math.random = () => jitter.next();
    try {
      await scenario();
    } catch (error) {
      const what = error instanceof Error ? error.message : String(error);
      throw new SimulationFailure(this.seed, what, this.trace.tail(this.#tailLines), error);
    } finally {
      Math.random = random;
    }
  }
}

/**
 * The seeds to run: the one that the environment names, or as many as it asks for.
 *
 * @throws {RangeError} for what is no whole number
 */
export function seedsToRun(
  defaultCount: number,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): readonly number[] {
  const whole = (name: string): number | undefined => {
    const text = environment[name];
    if (text === undefined || text === "") return undefined;
    const value = Number(text);
    if (Number.isInteger(value) && value >= 0) return value;
    throw new RangeError(`${name} must be a whole number >= 0; got ${JSON.stringify(text)}`);
  };
  const seed = whole(SEED_VARIABLE);
  if (seed !== undefined) return [seed];
  return Array.from({ length: whole(SEEDS_VARIABLE) ?? defaultCount }, (_, index) => index + 1);
}
