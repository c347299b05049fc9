import { LeaseConfig, type LeaseOptions } from "@krabka/core";
import { describe, expect, it } from "vitest";

const timings = (options?: LeaseOptions) => {
  const { leaseMs, renewMs, staggerMs } = LeaseConfig.of(options);
  return [leaseMs, renewMs, staggerMs];
};
const refusal = (options: object): string => {
  try {
    LeaseConfig.of(options as LeaseOptions);
  } catch (error) {
    expect(error).toMatchObject({ code: "INVALID_ARGUMENT" });
    return (error as Error).message;
  }
  return "accepted";
};

describe("LeaseConfig", () => {
  it("defaults to 30 s, 10 s and 5 s", () => {
    expect(timings()).toEqual([30_000, 10_000, 5_000]);
    expect(timings({ leaseMs: undefined, renewMs: undefined, staggerMs: undefined })).toEqual([30_000, 10_000, 5_000]);
    expect(LeaseConfig.of().warnings).toEqual([]);
  });

  it("defaults renew and stagger to a third and a sixth of the lease", () => {
    expect(timings({ leaseMs: 6_000 })).toEqual([6_000, 2_000, 1_000]);
    expect(timings({ leaseMs: 300 })).toEqual([300, 100, 50]);
    expect(timings({ leaseMs: 1_000 })).toEqual([1_000, 333, 166]);
    expect(timings({ leaseMs: 2 ** 31 - 1 })).toEqual([2147483647, 715827882, 357913941]);
    for (const leaseMs of [300, 301, 302, 1_000, 2 ** 31 - 1]) expect(LeaseConfig.of({ leaseMs }).warnings).toEqual([]);
  });

  it.each([
    [{ leaseMs: 300, renewMs: 299, staggerMs: 1 }],
    [{ leaseMs: 300, renewMs: 1, staggerMs: 2147483647 }],
    [{ leaseMs: 2147483647, renewMs: 2147483646, staggerMs: 2147483647 }],
  ])("accepts %j, at the edge", (options) => {
    expect(timings(options)).toEqual(Object.values(options));
  });

  it.each([
    [{ leaseMs: 30_000, renewMs: 30_000 }, "renewMs < leaseMs must hold; got renewMs 30000, leaseMs 30000"],
    [{ leaseMs: 30_000, renewMs: 30_001 }, "renewMs < leaseMs must hold; got renewMs 30001, leaseMs 30000"],
    [{ renewMs: 30_000 }, "renewMs < leaseMs must hold; got renewMs 30000, leaseMs 30000"],
    [{ leaseMs: 300, renewMs: 300 }, "renewMs < leaseMs must hold; got renewMs 300, leaseMs 300"],
    [{ leaseMs: 299 }, "leaseMs must be whole milliseconds in 300..2147483647; got 299"],
    [{ leaseMs: 0 }, "leaseMs must be whole milliseconds in 300..2147483647; got 0"],
    [{ leaseMs: -30_000 }, "leaseMs must be whole milliseconds in 300..2147483647; got -30000"],
    [{ leaseMs: 2 ** 31 }, "leaseMs must be whole milliseconds in 300..2147483647; got 2147483648"],
    [{ leaseMs: 60 * 24 * 3_600_000 }, "leaseMs must be whole milliseconds in 300..2147483647; got 5184000000"],
    [{ leaseMs: 1_000.5 }, "leaseMs must be whole milliseconds in 300..2147483647; got 1000.5"],
    [{ leaseMs: Number.NaN }, "leaseMs must be whole milliseconds in 300..2147483647; got NaN"],
    [{ leaseMs: Number.POSITIVE_INFINITY }, "leaseMs must be whole milliseconds in 300..2147483647; got Infinity"],
    [{ leaseMs: "30000" }, 'leaseMs must be whole milliseconds in 300..2147483647; got "30000"'],
    [{ leaseMs: 30_000n }, "leaseMs must be whole milliseconds in 300..2147483647; got 30000n"],
    [{ leaseMs: {} }, "leaseMs must be whole milliseconds in 300..2147483647; got an object"],
    [{ renewMs: 0 }, "renewMs must be whole milliseconds in 1..2147483647; got 0"],
    [{ renewMs: -1 }, "renewMs must be whole milliseconds in 1..2147483647; got -1"],
    [{ renewMs: Number.NaN }, "renewMs must be whole milliseconds in 1..2147483647; got NaN"],
    [{ renewMs: "10000" }, 'renewMs must be whole milliseconds in 1..2147483647; got "10000"'],
    [{ renewMs: 2 ** 31 }, "renewMs must be whole milliseconds in 1..2147483647; got 2147483648"],
    [{ staggerMs: 0 }, "staggerMs must be whole milliseconds in 1..2147483647; got 0"],
    [{ staggerMs: -5 }, "staggerMs must be whole milliseconds in 1..2147483647; got -5"],
    [{ staggerMs: Number.NaN }, "staggerMs must be whole milliseconds in 1..2147483647; got NaN"],
    [{ staggerMs: Number.NEGATIVE_INFINITY }, "staggerMs must be whole milliseconds in 1..2147483647; got -Infinity"],
    [{ staggerMs: 2 ** 31 }, "staggerMs must be whole milliseconds in 1..2147483647; got 2147483648"],
  ])("refuses a configuration and says what is wanted: %o", (options, message) => {
    expect(refusal(options)).toBe(message);
  });

  it("warns, and no more than that, when a renewal comes later than at a third of the lease", () => {
    expect(LeaseConfig.of({ leaseMs: 30_000, renewMs: 10_000 }).warnings).toEqual([]);
    expect(LeaseConfig.of({ leaseMs: 30_000, renewMs: 10_001 }).warnings).toEqual([
      "renewMs 10001 is over a third of leaseMs 30000: two lost renewals end the lease",
    ]);
  });
});
