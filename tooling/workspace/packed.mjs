import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must, packageManager, root, toolPath } from "./steps.mjs";

/** Packs every public package as it would be published, and has its manifest and types checked. */
export async function checkPacked() {
  const folder = mkdtempSync(join(tmpdir(), "krabka-packed-"));
  try {
    for (const name of readdirSync(join(root, "packages"))) {
      const source = join(root, "packages", name);
      if (JSON.parse(readFileSync(join(source, "package.json"), "utf8")).private) continue;
      await must("npx", ["--yes", packageManager, "--dir", source, "pack", "--pack-destination", folder], {
        quiet: true,
      });
    }
    for (const tarball of readdirSync(folder)) {
      const file = join(folder, tarball);
      await must(toolPath("publint"), [file, "--strict"], { quiet: true });
      await must(toolPath("attw"), [file, "--profile", "esm-only"], { quiet: true });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}
