import type { Transport } from "@krabka/core";
import { type StartKafkaOptions, startKafka } from "@krabka/tooling-kafka";
import { describe, inject, it } from "vitest";
import { Stage } from "./stage.js";

/** How the transport under trial is made. */
export type MakeTransport = (place: {
  readonly bootstrap: string;
  readonly clientId: string;
  /** Shorter than a service would want it, so that a trial does not wait long. */
  readonly requestTimeoutMs: number;
}) => Transport;

/** A fault that others met in systems of this kind, on real brokers. */
export interface Trial {
  /** Begins with the trial's id. */
  readonly title: string;
  /** A cluster of its own. @default the broker that all test files share */
  readonly cluster?: StartKafkaOptions;
  readonly run: (stage: Stage) => Promise<void>;
}

/** How often a trial repeats itself where chance decides; more with `KRABKA_TRIAL_RUNS`. */
export const runsOr = (byDefault: number): number => Number(process.env.KRABKA_TRIAL_RUNS) || byDefault;

/** Declares trials as tests. The bodies are the same for every transport. */
export const declareTrials = (name: string, makeTransport: MakeTransport, trials: readonly Trial[]): void => {
  describe(`client on ${name}`, () => {
    for (const { title, cluster: wanted, run } of trials) {
      it(title, async () => {
        const cluster = wanted && (await startKafka(wanted));
        try {
          const bootstrap = cluster?.bootstrap ?? inject("kafkaBootstrap");
          await using stage = new Stage({ transportName: name, makeTransport, bootstrap, cluster });
          await run(stage);
        } finally {
          await cluster?.close();
        }
      });
    }
  });
};
