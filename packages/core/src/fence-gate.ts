import { FencedError } from "./errors.js";
import type { FencingToken } from "./fencing-token.js";

/** Where a gate keeps its highest token, so that a restart does not let an old leader in. */
export interface FenceStore {
  /** The token saved last, or undefined for a fresh resource. */
  load(): Promise<FencingToken | undefined>;
  /** Resolves once `token` is durable. Tokens come in rising order, one call at a time. */
  save(token: FencingToken): Promise<void>;
}

/**
 * The resource's side of the fence: admits a caller only if no later leader was seen.
 *
 * The order is that of terms, not of producer pairs. One gate serves one role; a resource that serves several roles keeps
 * one each. Without a store the memory ends with the process, and a device that restarts admits the first token it sees.
 */
export class FenceGate {
  #highest: FencingToken | undefined;
  #saved: FencingToken | undefined;
  #saving: Promise<void> = Promise.resolve();
  readonly #store: FenceStore | undefined;

  private constructor(highest: FencingToken | undefined, store: FenceStore | undefined) {
    this.#highest = highest;
    this.#saved = highest;
    this.#store = store;
  }

  /** A gate that forgets everything when the process ends. */
  static inMemory(): FenceGate {
    return new FenceGate(undefined, undefined);
  }

  /** A gate that goes on where the store left off. */
  static async open(store: FenceStore): Promise<FenceGate> {
    return new FenceGate(await store.load(), store);
  }

  /** The highest token seen, or undefined. */
  get highest(): FencingToken | undefined {
    return this.#highest;
  }

  /** Whether `token` would be admitted now. A look, not a decision: it raises nothing. */
  wouldAdmit(token: FencingToken): boolean {
    return this.#highest === undefined || token.compareTo(this.#highest) >= 0;
  }

  /**
   * Resolves once `token` is the highest seen, durably where there is a store. Act only after that, and check
   * `wouldAdmit` again if the action itself waits for something first.
   *
   * @throws {FencedError} A later leader was seen, also if that happened while the token was being saved.
   */
  async admit(token: FencingToken): Promise<void> {
    this.#refuseOlder(token);
    this.#highest = token;
    const store = this.#store;
    if (store === undefined) return;
    const saving = this.#saving.then(async () => {
      const highest = this.#highest as FencingToken;
      if (this.#saved !== undefined && this.#saved.compareTo(highest) >= 0) return;
      await store.save(highest);
      this.#saved = highest;
    });
    // A failed save is this caller's error; the next caller tries again.
    this.#saving = saving.catch(() => undefined);
    await saving;
    this.#refuseOlder(token);
  }

  #refuseOlder(token: FencingToken): void {
    if (this.wouldAdmit(token)) return;
    throw new FencedError(`Token ${token} is older than ${this.#highest}, which this resource has seen`, { token });
  }
}

/** Name of the HTTP header and of the record header that carry a token as `term:producerId:epoch`. */
export const TOKEN_HEADER = "krabka-token";
