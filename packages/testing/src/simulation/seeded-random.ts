/** Numbers that look random and depend on the seed alone (mulberry32). */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** In [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number, both ends included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** @throws {RangeError} when there is nothing to pick from */
  pick<T>(choices: readonly T[]): T {
    if (choices.length === 0) throw new RangeError("There is nothing to pick from");
    return choices[this.between(0, choices.length - 1)] as T;
  }

  /** A generator of its own, so that draws here and there do not shift each other. */
  fork(): SeededRandom {
    return new SeededRandom(this.between(0, 0xffff_ffff));
  }
}
