import { setTimeout as sleep } from "node:timers/promises";
import { FencingToken, TOKEN_HEADER } from "@krabka/core";
import { EmbeddedTransport } from "@krabka/local";
import { expect, it } from "vitest";
import { bundle } from "../bundle.js";
import { randomFrom, runs } from "../log-script.js";
import { Talker } from "./processes.js";
import { temporary } from "./temporary.js";

const TOPIC = "commands";
const LOG = { topic: TOPIC, partition: 0 };
const PROCESSES = 4;

/** Nothing of a write that ended so is there. */
const NEVER_THERE = ["FENCED", "NOT_LEADER", "NOT_COMMITTED"];

const ownersAmong = async (members: readonly Talker[]): Promise<Talker[]> => {
  const asked = members.map(async (member) => {
    const from = member.said.length;
    member.tell("status");
    return (await member.hear("status", from)).text === "owner";
  });
  const answers = await Promise.all(asked);
  return members.filter((_, index) => answers[index]);
};

it(
  "kill -9 of owners and others at any moment, with four processes: all that was acknowledged is there, once, in the order of terms",
  async () => {
    const kills = runs(12);
    const place = await temporary();
    const { directory } = place;
    const script = await bundle("embedded/member.ts", `${directory}/..`);
    const all: Talker[] = [];
    let living: Talker[] = [];
    const start = async (): Promise<void> => {
      const member = new Talker(script, [`node-${all.length}`, directory, TOPIC, "400"]);
      all.push(member);
      living.push(member);
      await member.hear("ready");
    };
    for (let count = 0; count < PROCESSES; count++) await start();

    const reader = EmbeddedTransport.connect({ socketPath: `${directory}/owner.sock`, topics: { [TOPIC]: 1 } });
    const stop = new AbortController();
    const tailed: string[] = [];
    const tail = (async () => {
      for await (const { offset, value } of reader.tail(LOG, { signal: stop.signal })) {
        tailed.push(`${offset} ${Buffer.from(value ?? []).toString()}`);
      }
    })().catch((error: unknown) => error);

    const random = randomFrom(7);
    let ownersKilled = 0;
    for (let kill = 0; kill < kills; kill++) {
      await sleep(random() * 400);
      const [owner] = random() < 0.7 ? await ownersAmong(living) : [];
      const victim = owner ?? (living[Math.floor(random() * living.length)] as Talker);
      if (owner !== undefined) ownersKilled += 1;
      living = living.filter((member) => member !== victim);
      await victim.kill();
      await start();
    }
    expect(ownersKilled).toBeGreaterThan(kills / 4);
    // Somebody leads on, or again.
    const heard = all.map((member) => member.said.length);
    await Promise.race(living.map((member) => member.hear("written", heard[all.indexOf(member)])));
    for (const member of living) await member.kill();

    const owner = await EmbeddedTransport.open({ directory });
    const found: string[] = [];
    let last: FencingToken | undefined;
    for await (const { offset, value, headers } of owner.readTopic(LOG)) {
      found.push(`${offset} ${Buffer.from(value ?? []).toString()}`);
      const header = headers.find(({ key }) => key === TOKEN_HEADER);
      const token = FencingToken.parse(Buffer.from(header?.value ?? []).toString());
      if (last !== undefined) expect(FencingToken.compare(token, last), `offset ${offset}`).toBeGreaterThanOrEqual(0);
      last = token;
    }
    const values = found.map((line) => line.split(" ")[1]);
    expect(new Set(values).size).toBe(values.length);
    const said = all.flatMap((member) => member.said);
    const acknowledged = said.filter(({ kind }) => kind === "written").map(({ text }) => text);
    expect(acknowledged.length).toBeGreaterThan(kills);
    expect(acknowledged.filter((line) => !found.includes(line))).toEqual([]);
    const refused = said.filter(({ kind }) => kind === "refused").map(({ text }) => text.split(" "));
    const never = refused.filter(([, code = ""]) => NEVER_THERE.includes(code)).map(([value]) => value);
    expect(never.filter((value) => values.includes(value))).toEqual([]);
    stop.abort();
    await tail;
    await reader.close();
    // A reader that was there all the time saw no gap and nothing twice.
    expect(tailed).toEqual(found.slice(0, tailed.length));
    expect(tailed.length).toBeGreaterThan(kills);
    await owner.close();
    await place.remove();
  },
  120_000 * runs(1),
);

it("of eight processes that start at once exactly one owns the directory, and when it is killed exactly one other does", async () => {
  const place = await temporary();
  const { directory } = place;
  const script = await bundle("embedded/member.ts", `${directory}/..`);
  const all = Array.from({ length: 8 }, (_, index) => new Talker(script, [`node-${index}`, directory, TOPIC, "1000"]));
  await Promise.all(all.map((member) => member.hear("ready")));
  let living = all;
  for (const left of [8, 7, 6]) {
    expect(living.length).toBe(left);
    let owners: Talker[] = [];
    // After a kill nobody owns it for a moment.
    while (owners.length === 0) owners = await ownersAmong(living);
    expect(owners.length).toBe(1);
    await owners[0]?.kill();
    living = living.filter((member) => member !== owners[0]);
  }
  for (const member of living) await member.kill();
  await place.remove();
}, 60_000);
