import { expect, it } from "vitest";
import { percentile } from "../src/figures.js";

it("a percentile is the nearest rank, whatever the order of the samples", () => {
  const samples = [5, 1, 4, 2, 3];
  expect(percentile(samples, 0)).toBe(1);
  expect(percentile(samples, 0.5)).toBe(3);
  expect(percentile(samples, 0.99)).toBe(5);
  expect(percentile([7], 0.5)).toBe(7);
  expect(() => percentile([], 0.5)).toThrow(RangeError);
});
