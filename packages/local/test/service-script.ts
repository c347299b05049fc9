import { FileLog, type FileLogOptions, LogBackedCoordinationService, type ServiceOptions } from "@krabka/local";
import { ManualClock } from "@krabka/testing";
import { Disk } from "./disk.js";
import { DIRECTORY } from "./log-script.js";

export interface Host {
  readonly disk: Disk;
  readonly clock: ManualClock;
  readonly log: FileLog;
  readonly service: LogBackedCoordinationService;
}

export interface HostOptions {
  readonly disk?: Disk;
  readonly clock?: ManualClock;
  readonly service?: ServiceOptions;
  readonly log?: FileLogOptions;
}

/** A service on a log on a disk in memory. */
export async function openHost(options: HostOptions = {}): Promise<Host> {
  const { disk = new Disk(), clock = new ManualClock() } = options;
  const log = await FileLog.open(DIRECTORY, { ...options.log, fileSystem: disk.process() });
  const service = await LogBackedCoordinationService.open(log, { clock, ...options.service });
  return { disk, clock, log, service };
}

/** The process dies at once and a new one opens what is on the disk. */
export async function restart(host: Host, options: HostOptions = {}): Promise<Host> {
  host.disk.unplug();
  const clock = options.clock ?? host.clock.fork();
  return openHost({ ...options, disk: host.disk, clock });
}

/** What a call gave, or throws if it was refused. */
export function granted<R extends { readonly success: boolean }>(result: R): Extract<R, { readonly success: true }> {
  if (result.success) return result as Extract<R, { readonly success: true }>;
  throw new Error(
    `Refused: ${JSON.stringify(result, (_, value) => (typeof value === "bigint" ? `${value}n` : value))}`,
  );
}

export function refused<R extends { readonly success: boolean }>(result: R): Extract<R, { readonly success: false }> {
  if (!result.success) return result as Extract<R, { readonly success: false }>;
  throw new Error("It was not refused");
}

/** Lets promise jobs and deliveries run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}
