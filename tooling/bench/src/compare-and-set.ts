import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ABSENT, FileLog, LogBackedCoordinationService } from "@krabka/local";

const ROUNDS = 6;
const ROUND_MS = 1_000;
const VALUE_BYTES = 100;
const CALLERS = [1, 64];

/** Operations a second of one round. */
type Round = () => Promise<number>;

interface Statement {
  run(...values: unknown[]): { changes: number };
}

interface Database {
  pragma(text: string): unknown;
  exec(text: string): void;
  prepare(text: string): Statement;
  close(): void;
}

type SqliteConstructor = new (file: string) => Database;

/** The peer is native and has a package of its own, so that nothing else has to build it. */
function loadSqlite(): SqliteConstructor | undefined {
  try {
    return createRequire(new URL("../../peers/package.json", import.meta.url))("better-sqlite3") as SqliteConstructor;
  } catch {
    return undefined;
  }
}

/** SQLite with a write-ahead log and a sync for each transaction; its calls are synchronous, so callers take turns. */
function sqliteRound(Sqlite: SqliteConstructor, directory: string): { round: Round; close: () => void } {
  const database = new Sqlite(join(directory, "peer.db"));
  database.pragma("journal_mode = WAL");
  database.pragma("synchronous = FULL");
  database.exec("CREATE TABLE coordinate (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)");
  database.prepare("INSERT INTO coordinate VALUES (?, ?, 0)").run("key", Buffer.alloc(VALUE_BYTES));
  const update = database.prepare(
    "UPDATE coordinate SET value = ?, version = version + 1 WHERE key = ? AND version = ?",
  );
  let version = 0;
  const round = async () => {
    const startedAtMs = performance.now();
    let done = 0;
    while (performance.now() - startedAtMs < ROUND_MS) {
      if (update.run(Buffer.alloc(VALUE_BYTES, version), "key", version).changes !== 1)
        throw new Error("Nobody else writes");
      version += 1;
      done += 1;
    }
    return (done * 1_000) / (performance.now() - startedAtMs);
  };
  return { round, close: () => database.close() };
}

function serviceRound(service: LogBackedCoordinationService, callers: number): Round {
  const values = new Map<number, Uint8Array>();
  return async () => {
    const startedAtMs = performance.now();
    let done = 0;
    const caller = async (lane: number) => {
      while (performance.now() - startedAtMs < ROUND_MS) {
        const next = Buffer.alloc(VALUE_BYTES, done);
        const result = await service.compareAndSet(`${callers}-${lane}`, values.get(lane) ?? ABSENT, next);
        if (!result.success) throw new Error("Nobody else writes");
        values.set(lane, next);
        done += 1;
      }
    };
    await Promise.all(Array.from({ length: callers }, (_, lane) => caller(lane)));
    return (done * 1_000) / (performance.now() - startedAtMs);
  };
}

const median = (rates: readonly number[]): number =>
  [...rates].sort((a, b) => a - b)[Math.floor(rates.length / 2)] ?? 0;

/** Durable compare-and-sets of 100 bytes, in turn with SQLite in the same directory. */
export async function measureCompareAndSet(json: boolean): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "krabka-bench-"));
  const log = await FileLog.open(join(directory, "log"));
  const service = await LogBackedCoordinationService.open(log);
  const Sqlite = loadSqlite();
  if (Sqlite === undefined) console.log("better-sqlite3 is absent: no baseline");
  const peer = Sqlite === undefined ? undefined : sqliteRound(Sqlite, directory);
  const rounds = new Map(CALLERS.map((callers) => [callers, serviceRound(service, callers)]));
  const rates = new Map<number, number[]>(CALLERS.map((callers) => [callers, []]));
  const baseline: number[] = [];
  for (let i = 0; i <= ROUNDS; i++) {
    const peerRate = await peer?.round();
    if (i > 0 && peerRate !== undefined) baseline.push(peerRate);
    for (const [callers, round] of rounds) {
      const rate = await round();
      if (i > 0) rates.get(callers)?.push(rate);
    }
  }
  peer?.close();
  await service.close();
  await log.close();
  await rm(directory, { recursive: true });
  const basis = median(baseline);
  if (peer !== undefined) console.log(`SQLite, WAL, synchronous=FULL: ${Math.round(basis)}/s`);
  for (const callers of CALLERS) {
    const value = median(rates.get(callers) ?? []);
    const ratio = value / basis;
    console.log(
      `${callers} callers: ${Math.round(value)}/s${peer === undefined ? "" : `, ${ratio.toFixed(2)} times SQLite`}`,
    );
    if (json)
      console.log(JSON.stringify({ id: `P8/${callers}`, value, baseline: basis, ratio, unit: "1/s", n: ROUNDS }));
  }
}
