import { DuplicateMemberError, FencedError, FencingToken, KrabkaError } from "@krabka/core";
import { describe, expect, it, vi } from "vitest";

const token = FencingToken.parse("5:9007199254740993:1");

describe("errors", () => {
  it("carry a code, and what is known of role, member, token and cause", () => {
    const cause = new Error("socket closed");
    const error = new KrabkaError("UNREACHABLE", "No broker answered", { role: "r", member: "m", token, cause });
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name: "KrabkaError", code: "UNREACHABLE", message: "No broker answered" });
    expect(error).toMatchObject({ role: "r", member: "m", token, cause });
    expect(String(error)).toBe("KrabkaError: No broker answered");
  });

  it("have no cause property when there is no cause", () => {
    expect("cause" in new KrabkaError("CLOSED", "closed")).toBe(false);
    expect(new KrabkaError("CLOSED", "closed")).toMatchObject({ role: undefined, member: undefined, token: undefined });
  });

  it("can be logged as JSON with their 64-bit values exact (A8)", () => {
    const json = JSON.parse(JSON.stringify(new FencedError("refused", { token })));
    expect(json).toMatchObject({ code: "FENCED", token: { producerId: "9007199254740993" } });
  });

  it("have classes with their own code and name", () => {
    expect(new FencedError("refused")).toMatchObject({ name: "FencedError", code: "FENCED" });
    expect(new DuplicateMemberError("twice")).toMatchObject({ name: "DuplicateMemberError", code: "DUPLICATE_MEMBER" });
    expect(new FencedError("refused")).toBeInstanceOf(KrabkaError);
  });

  it("are told apart by is()", () => {
    const closed = new KrabkaError("CLOSED", "closed");
    const fenced = new FencedError("refused");
    const twice = new DuplicateMemberError("twice");
    expect([closed, fenced, twice].map((error) => KrabkaError.is(error))).toEqual([true, true, true]);
    expect([closed, fenced, twice].map((error) => FencedError.is(error))).toEqual([false, true, false]);
    expect([closed, fenced, twice].map((error) => DuplicateMemberError.is(error))).toEqual([false, false, true]);
  });

  it("are not taken for Krabka's because they look alike", () => {
    const alike = Object.assign(new Error("refused"), { name: "FencedError", code: "FENCED" });
    for (const value of [alike, { code: "FENCED" }, null, undefined, "FENCED", 47, () => "FENCED"]) {
      expect([KrabkaError.is(value), FencedError.is(value), DuplicateMemberError.is(value)]).toEqual([
        false,
        false,
        false,
      ]);
    }
  });

  it("are recognised across two copies of the package, where instanceof fails", async () => {
    vi.resetModules();
    const other = await import("@krabka/core");
    expect(other.FencedError).not.toBe(FencedError);
    const foreign = new other.FencedError("refused");
    expect(foreign).not.toBeInstanceOf(KrabkaError);
    expect([KrabkaError.is(foreign), FencedError.is(foreign)]).toEqual([true, true]);
    expect(DuplicateMemberError.is(foreign)).toBe(false);
    expect(other.DuplicateMemberError.is(new DuplicateMemberError("twice"))).toBe(true);
  });
});
