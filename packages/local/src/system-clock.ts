import type { Clock, Timer } from "@krabka/core";

/** The machine's clocks and Node's timers. */
export const systemClock: Clock = {
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  setTimer(delayMs: number, fire: () => void): Timer {
    const timer = setTimeout(fire, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};
