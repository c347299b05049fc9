import type { ByteReader, ByteWriter } from "../../state/binary.js";

/** What somebody who was connected knows of a log: everything it was told stands before `position`. */
export interface Sighting {
  /** Name of the opening under which it was connected. */
  readonly opening: string;
  readonly position: bigint;
}

interface Opening {
  readonly name: string;
  /** Position of the record that begins it. The opening before ends here. */
  readonly from: bigint;
}

/** Somebody who comes back after more openings than this is taken for a stranger's. */
const MAX_OPENINGS = 1000;

/**
 * The openings of one log, each with a random name that stands in the log itself.
 *
 * A copy that is put back forks the log. Whoever saw the branch that was given up is found out, however long the copy has
 * become since: either it saw an opening that the copy never had, or more of one than the copy has.
 */
export class Openings {
  #openings: readonly Opening[] = [];

  /** The newest one's name. */
  get current(): string {
    return this.#openings.at(-1)?.name ?? "";
  }

  begin(name: string, from: bigint): void {
    this.#openings = [...this.#openings, { name, from }].slice(-MAX_OPENINGS);
  }

  /**
   * Why what was seen is no part of this log, or undefined if it is.
   *
   * @param end Position after the newest durable record.
   */
  contradiction({ opening, position }: Sighting, end: bigint): string | undefined {
    const index = this.#openings.findIndex(({ name }) => name === opening);
    if (index < 0) return `it was connected under opening ${opening}, which this log does not have`;
    const endOfOpening = this.#openings[index + 1]?.from ?? end;
    if (position <= endOfOpening) return undefined;
    return `it saw opening ${opening} up to record ${position}, which here ends at ${endOfOpening}`;
  }

  encode(writer: ByteWriter): void {
    writer.list(this.#openings, (to, { name, from }) => to.string(name).int64(from));
  }

  /** @throws {Error} where it makes no sense */
  static decode(reader: ByteReader): Openings {
    const book = new Openings();
    book.#openings = reader.list((from) => ({ name: from.string(), from: from.int64() }));
    for (const [index, { from }] of book.#openings.entries()) {
      if (from <= (book.#openings[index - 1]?.from ?? -1n)) throw new Error(`an opening begins at ${from}, too early`);
    }
    return book;
  }
}
