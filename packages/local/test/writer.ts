import { writeSync } from "node:fs";
import { ABSENT, FileLog, LogBackedCoordinationService } from "@krabka/local";

// Writes for ever and says what was acknowledged, one line for each, until it is killed.
const directory = process.argv[2] ?? "";
const life = process.argv[3] ?? "";
const log = await FileLog.open(directory, { segmentBytes: 4096 });
const service = await LogBackedCoordinationService.open(log, { checkpointAfterBytes: 8192 });

const say = (line: string): void => void writeSync(1, `${line}\n`);
say("ready");

const writer = async (lane: number): Promise<never> => {
  const key = `lane-${lane}`;
  const found = (await service.get(key)).found;
  let expected: Uint8Array | typeof ABSENT = found?.value ?? ABSENT;
  for (let step = 0; ; step++) {
    const value = Buffer.from(`${life}.${step}`);
    const changed = await service.compareAndSet(key, expected, value);
    if (!changed.success) throw new Error(`${key} was changed by somebody else`);
    say(`value ${key} ${value}`);
    expected = value;
    const granted = await service.acquireLease(key, "writer", 1);
    if (!granted.success) continue;
    say(`token ${key} ${granted.lease.epoch}`);
    await service.releaseLease(key, "writer", granted.lease.epoch);
  }
};
await Promise.all(Array.from({ length: 8 }, (_, lane) => writer(lane)));
