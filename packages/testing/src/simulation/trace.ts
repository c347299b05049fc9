/** What happened in a simulated run: one line for each transition, with the instant at which it happened. */
export class Trace {
  readonly #nowMs: () => number;
  readonly #lines: string[] = [];

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  add(who: string, what: string): void {
    this.#lines.push(`${this.#nowMs().toFixed(1).padStart(10)} ${who.padEnd(12)} ${what}`);
  }

  get lines(): readonly string[] {
    return this.#lines;
  }

  /** The newest lines as one text. */
  tail(count: number): string {
    return this.#lines.slice(-count).join("\n");
  }
}
