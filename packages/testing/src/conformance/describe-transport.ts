import { afterAll, afterEach, beforeAll, describe, it } from "vitest";
import { ambiguityTests } from "./ambiguity.js";
import { Bench } from "./bench.js";
import type { ConformanceTest } from "./conformance-test.js";
import { fencingTests } from "./fencing.js";
import type { TransportHarness, TransportSubject } from "./harness.js";
import { lifecycleTests } from "./lifecycle.js";
import { readingTests } from "./reading.js";
import { writingTests } from "./writing.js";

const THEMES: readonly (readonly [string, readonly ConformanceTest[]])[] = [
  ["fencing", fencingTests],
  ["writing", writingTests],
  ["ambiguity", ambiguityTests],
  ["reading", readingTests],
  ["lifecycle", lifecycleTests],
];

/**
 * Declares the conformance suite of one transport as vitest tests. The bodies are the same for every backend; a test that
 * needs what the subject declares as missing or unsupported is skipped with the reason in its title.
 */
export const describeTransport = (subject: TransportSubject): void => {
  describe(`${subject.name} conforms to the transport interface`, () => {
    let harness: TransportHarness | undefined;
    let bench: Bench | undefined;
    beforeAll(async () => {
      harness = await subject.start();
    });
    afterEach(async () => {
      await bench?.close();
      bench = undefined;
    });
    afterAll(async () => {
      await harness?.close();
    });
    for (const [theme, tests] of THEMES) {
      describe(theme, () => {
        for (const { title, needs = [], run } of tests) {
          const reasons = needs.flatMap((need) => reasonAgainst(subject, need) ?? []);
          if (reasons.length > 0) {
            it.skip(`${title} [${reasons.join("; ")}]`, () => {});
            continue;
          }
          it(title, async () => {
            if (harness === undefined) throw new Error(`The harness of ${subject.name} did not start`);
            bench = new Bench(subject, harness);
            await run(bench);
          });
        }
      });
    }
  });
};

const reasonAgainst = (subject: TransportSubject, need: string): string | undefined => {
  const reasons: { readonly [name: string]: string | undefined } = { ...subject.missing, ...subject.unsupported };
  return reasons[need];
};
