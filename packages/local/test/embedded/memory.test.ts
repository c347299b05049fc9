import { expect, it } from "vitest";
import { bundle } from "../bundle.js";
import { Talker } from "./processes.js";
import { temporary } from "./temporary.js";

const PARTS = 5;
const ROLES_IN_PART = 2000;
/**
 * Well below what a role leaves behind if any of its traces stays: with the pairs, the records, the fences or the tombstones kept,
 * 900 to 2400 bytes were measured; as it is, none.
 */
const BYTES_A_ROLE = 250;

it("what an owner keeps in memory stays flat under ever new roles, members, clients and records", async () => {
  const place = await temporary();
  const script = await bundle("embedded/hoard.ts", `${place.directory}/..`);
  const owner = new Talker(script, [place.directory, String(PARTS), String(ROLES_IN_PART)], ["--expose-gc"]);
  await owner.exited;
  const kept = owner.said.map(({ text }) => Number(text));
  expect(kept).toHaveLength(PARTS);
  // After the first part everything that is bounded is full.
  const grown = (kept.at(-1) as number) - (kept[0] as number);
  expect(grown, `${kept}`).toBeLessThan((PARTS - 1) * ROLES_IN_PART * BYTES_A_ROLE);
  await place.remove();
}, 120_000);
