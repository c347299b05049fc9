/** Delays that double from `firstMs` to `lastMs`. */
export class Backoff {
  readonly #firstMs: number;
  readonly #lastMs: number;
  #nextMs: number;

  constructor(firstMs: number, lastMs: number) {
    this.#firstMs = firstMs;
    this.#nextMs = firstMs;
    this.#lastMs = lastMs;
  }

  next(): number {
    const delayMs = this.#nextMs;
    this.#nextMs = Math.min(this.#lastMs, delayMs * 2);
    return delayMs;
  }

  reset(): void {
    this.#nextMs = this.#firstMs;
  }
}
