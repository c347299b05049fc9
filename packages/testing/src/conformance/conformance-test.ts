import type { TransportCapabilities } from "@krabka/core";
import type { Bench } from "./bench.js";
import type { HarnessPower } from "./harness.js";

/** One test of the suite. */
export interface ConformanceTest {
  /** A sentence that states the fact. */
  readonly title: string;
  /** Without one of these, of the harness or of the transport, the test is skipped. */
  readonly needs?: readonly (HarnessPower | keyof TransportCapabilities)[] | undefined;
  readonly run: (bench: Bench) => Promise<void>;
}
