import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { FileLog, LogBackedCoordinationService } from "@krabka/local";
import { describe, expect, it } from "vitest";
import { bundle, scratch } from "./bundle.js";
import { randomFrom, runs } from "./log-script.js";

describe("A process that is killed", () => {
  it("H2, H13: kill -9 at any moment loses nothing that was acknowledged, and numbers only grow", async () => {
    const kills = runs(20);
    const { directory: base, remove } = await scratch();
    const writer = await bundle("writer.ts", base);
    const directory = join(base, "log");
    const random = randomFrom(20);
    const values = new Map<string, string>();
    const tokens = new Map<string, bigint>();
    let acknowledged = 0;
    for (let life = 0; life < kills; life++) {
      const child = spawn(process.execPath, [writer, directory, String(life)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      const exited = once(child, "exit");
      let out = "";
      let started = false;
      child.stdout.setEncoding("utf8").on("data", (text: string) => {
        out += text;
        if (started || !out.startsWith("ready\n")) return;
        started = true;
        setTimeout(() => child.kill("SIGKILL"), random() * 150);
      });
      const [code, signal] = await exited;
      expect([code, signal]).toEqual([null, "SIGKILL"]);
      for (const line of out.slice(0, out.lastIndexOf("\n") + 1).split("\n")) {
        const [what, key = "", said = ""] = line.split(" ");
        if (what === "value") values.set(key, said);
        if (what === "token") {
          expect(BigInt(said), line).toBeGreaterThan(tokens.get(key) ?? 0n);
          tokens.set(key, BigInt(said));
        }
        if (what === "value" || what === "token") acknowledged += 1;
      }
      const log = await FileLog.open(directory);
      const service = await LogBackedCoordinationService.open(log);
      for (const [key, said] of values) {
        const found = Buffer.from((await service.get(key)).found?.value ?? []).toString();
        // The one step that was on its way may be there without having been acknowledged.
        const [saidLife, saidStep] = said.split(".").map(Number);
        const [foundLife, foundStep] = found.split(".").map(Number);
        const isSame = found === said;
        const isNext = foundLife === saidLife && foundStep === (saidStep ?? 0) + 1;
        const isFirstOfThisLife = foundLife === life && saidLife !== life && foundStep === 0;
        expect(isSame || isNext || isFirstOfThisLife, `${key}: ${said} was acknowledged, ${found} is there`).toBe(true);
        values.set(key, found);
      }
      await service.close();
      await log.close();
    }
    expect(acknowledged).toBeGreaterThan(kills * 10);
    await remove();
  }, 600_000);
});
