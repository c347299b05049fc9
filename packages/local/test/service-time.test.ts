import type { Clock } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { ServiceTime } from "../src/service-time.js";
import { randomFrom } from "./log-script.js";

const clockAt = (wallMs: number, monotonicMs: number): Clock => ({
  wallMs: () => wallMs,
  monotonicMs: () => monotonicMs,
  setTimer: () => ({ cancel: () => undefined }),
});

describe("Service time", () => {
  it("H13: is never below the last record's, whatever fractions the clock has", () => {
    const random = randomFrom(13);
    for (let i = 0; i < 10_000; i++) {
      const lastAtMs = Math.floor(random() * 2 ** 40);
      expect(new ServiceTime(clockAt(1000, random() * 1e7), lastAtMs, 1000).nowMs()).toBe(lastAtMs);
    }
  });

  it("H14: counts how long the service was down by the wall clock, and nothing where that went back", () => {
    expect(new ServiceTime(clockAt(5000, 7.5), 100, 2000).nowMs()).toBe(3100);
    expect(new ServiceTime(clockAt(1000, 7.5), 100, 2000).nowMs()).toBe(100);
    expect(new ServiceTime(clockAt(5000, 7.5), 0, 0).nowMs()).toBe(0);
  });
});
