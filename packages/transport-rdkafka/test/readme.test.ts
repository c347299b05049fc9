import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { capabilitiesWith, UNSUPPORTED_REASONS } from "../src/capabilities.js";

/** Not a capability of the interface: without it `prepare` warns. */
const { topicSettings: _, ...lacking } = UNSUPPORTED_REASONS;

describe("the README", () => {
  it("gives the reason for each thing that is lacking, word for word", async () => {
    const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");
    for (const [name, reason] of Object.entries(UNSUPPORTED_REASONS)) {
      const supported = reason.endsWith("pass a describer") ? "with a describer" : "no";
      expect(readme).toContain(`| \`${name}\` | ${supported} | ${reason} |`);
    }
  });

  it("says the same as what is declared", () => {
    const without = capabilitiesWith({ describer: false });
    for (const [name, reason] of Object.entries(lacking)) {
      expect(without[name as keyof typeof without]).toEqual({ supported: false, reason });
    }
    expect(capabilitiesWith({ describer: true })).toEqual({ ...without, describe: { supported: true } });
  });
});
