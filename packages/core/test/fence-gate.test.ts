import { FencedError, FenceGate, type FenceStore, FencingToken } from "@krabka/core";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const t = (term: number) => FencingToken.of({ term: BigInt(term), producerId: 1n, epoch: 0 });

/** Every save waits until the test ends it, well or badly; what was saved well is what a restart loads. */
class StepwiseStore implements FenceStore {
  saved: FencingToken | undefined;
  /** All saves that were asked for, in order. */
  readonly asked: string[] = [];
  #pending: { settle: (failure?: Error) => void } | undefined;

  async load(): Promise<FencingToken | undefined> {
    return this.saved;
  }

  save(token: FencingToken): Promise<void> {
    if (this.#pending !== undefined) throw new Error("Two saves at a time");
    this.asked.push(String(token.term));
    return new Promise((resolve, reject) => {
      const settle = (failure?: Error) => {
        this.#pending = undefined;
        if (failure !== undefined) return reject(failure);
        this.saved = token;
        resolve();
      };
      this.#pending = { settle };
    });
  }

  get busy(): boolean {
    return this.#pending !== undefined;
  }

  async settle(failure?: Error): Promise<void> {
    this.#pending?.settle(failure);
    await turns();
  }
}

/** Lets everything that waits for nothing but promises run. */
const turns = async () => {
  for (let i = 0; i < 20; i++) await Promise.resolve();
};

const outcome = (admission: Promise<void>): Promise<string> =>
  admission.then(
    () => "admitted",
    (error: Error) => (FencedError.is(error) ? "fenced" : error.message),
  );

describe("a gate in memory", () => {
  it("admits the first token it sees, the same again, and greater ones", async () => {
    const gate = FenceGate.inMemory();
    expect(gate.highest).toBeUndefined();
    for (const term of [5, 5, 6, 100]) {
      await gate.admit(t(term));
      expect(gate.highest).toEqual(t(term));
    }
  });

  it("refuses a lower token with both tokens in the error, and stays as it was", async () => {
    const gate = FenceGate.inMemory();
    await gate.admit(t(6));
    await expect(gate.admit(t(5))).rejects.toMatchObject({ code: "FENCED", token: t(5) });
    await expect(gate.admit(t(5))).rejects.toThrow(/5:1:0 is older than 6:1:0/);
    expect(gate.highest).toEqual(t(6));
  });

  it("goes by the term where the later leader's producer id is lower (A4)", async () => {
    const gate = FenceGate.inMemory();
    await gate.admit(FencingToken.parse("40:2001:5"));
    await gate.admit(FencingToken.parse("58:1003:0"));
    expect(await outcome(gate.admit(FencingToken.parse("40:2001:5")))).toBe("fenced");
  });

  it("raises nothing when it is only asked", async () => {
    const gate = FenceGate.inMemory();
    expect(gate.wouldAdmit(t(9))).toBe(true);
    expect(gate.highest).toBeUndefined();
    await gate.admit(t(3));
    expect([gate.wouldAdmit(t(2)), gate.wouldAdmit(t(3)), gate.wouldAdmit(t(4))]).toEqual([false, true, true]);
  });
});

describe("a gate with a store", () => {
  it("admits only once the token is durable", async () => {
    const store = new StepwiseStore();
    const gate = await FenceGate.open(store);
    let admitted = false;
    const admission = gate.admit(t(5)).then(() => {
      admitted = true;
    });
    await turns();
    expect([admitted, store.busy, gate.wouldAdmit(t(4))]).toEqual([false, true, false]);
    await store.settle();
    await admission;
    expect(store.saved).toEqual(t(5));
  });

  it("saves nothing for a token that is durable already", async () => {
    const store = new StepwiseStore();
    const gate = await FenceGate.open(store);
    const first = gate.admit(t(5));
    await turns();
    await store.settle();
    await first;
    await gate.admit(t(5));
    expect(store.asked).toEqual(["5"]);
  });

  it("goes on after a restart where the store left off", async () => {
    const store = new StepwiseStore();
    store.saved = t(7);
    const gate = await FenceGate.open(store);
    expect(gate.highest).toEqual(t(7));
    expect(await outcome(gate.admit(t(6)))).toBe("fenced");
    await gate.admit(t(7));
    expect(store.asked).toEqual([]);
  });

  it("does not open when the store can't be read", async () => {
    const broken: FenceStore = { load: () => Promise.reject(new Error("disk gone")), save: () => Promise.resolve() };
    await expect(FenceGate.open(broken)).rejects.toThrow("disk gone");
  });

  it("gives a failed save to the caller, still refuses older tokens, and saves again for the next caller", async () => {
    const store = new StepwiseStore();
    const gate = await FenceGate.open(store);
    const first = outcome(gate.admit(t(5)));
    await turns();
    await store.settle(new Error("disk full"));
    expect(await first).toBe("disk full");
    expect(await outcome(gate.admit(t(4)))).toBe("fenced");
    const again = outcome(gate.admit(t(5)));
    await turns();
    await store.settle();
    expect(await again).toBe("admitted");
    expect(store.asked).toEqual(["5", "5"]);
  });

  it("gives the error of a store that throws at once to the caller, and the next caller may succeed", async () => {
    let failing = true;
    const gate = await FenceGate.open({
      load: async () => undefined,
      save: () => {
        if (failing) throw new Error("not mounted");
        return Promise.resolve();
      },
    });
    expect(await outcome(gate.admit(t(5)))).toBe("not mounted");
    failing = false;
    expect(await outcome(gate.admit(t(5)))).toBe("admitted");
  });

  it("refuses a token that was overtaken while it was being saved", async () => {
    const store = new StepwiseStore();
    const gate = await FenceGate.open(store);
    const early = outcome(gate.admit(t(5)));
    await turns();
    const late = outcome(gate.admit(t(6)));
    await store.settle();
    expect(await early).toBe("fenced");
    await store.settle();
    expect(await late).toBe("admitted");
    expect(store.asked).toEqual(["5", "6"]);
  });

  it("saves once, the highest, for all who came during one save", async () => {
    const store = new StepwiseStore();
    const gate = await FenceGate.open(store);
    const outcomes = [5, 6, 7, 8, 8].map((term) => outcome(gate.admit(t(term))));
    await turns();
    await store.settle();
    expect(await Promise.all(outcomes)).toEqual(["fenced", "fenced", "fenced", "admitted", "admitted"]);
    expect(store.asked).toEqual(["8"]);
  });

  it("never admits behind a higher token, whatever the order of callers, saves, failures and restarts", async () => {
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.record({ admit: fc.integer({ min: 0, max: 6 }) }) },
      { weight: 4, arbitrary: fc.constantFrom({ settle: true }, { settle: false }) },
      { weight: 1, arbitrary: fc.constant({ restart: true }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const store = new StepwiseStore();
        let gate = await FenceGate.open(store);
        const violations: string[] = [];
        let highestAdmitted = -1;
        let generation = 0;
        for (const step of steps) {
          if ("admit" in step) {
            const born = generation;
            gate.admit(t(step.admit)).then(
              () => {
                // Answers of a process that is gone reach nobody.
                if (born !== generation) return;
                if (step.admit < highestAdmitted) violations.push(`${step.admit} after ${highestAdmitted}`);
                if ((store.saved?.compareTo(t(step.admit)) ?? -1) < 0) violations.push(`${step.admit} is not durable`);
                highestAdmitted = step.admit;
              },
              () => undefined,
            );
            await turns();
          } else if ("settle" in step) {
            await store.settle(step.settle ? undefined : new Error("disk full"));
          } else {
            generation += 1;
            await store.settle(new Error("process killed"));
            gate = await FenceGate.open(store);
          }
        }
        expect(violations).toEqual([]);
        const saves = store.asked.map(Number);
        if (generation === 0) expect(saves).toEqual([...saves].sort((a, b) => a - b));
      }),
      { numRuns: 500 },
    );
  });
});
