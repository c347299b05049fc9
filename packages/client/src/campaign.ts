import { DuplicateMemberError, KrabkaError } from "@krabka/core";
import type { Leadership } from "./leadership.js";
import type { Limit } from "./limits.js";

/**
 * What a member does while it leads. `signal` fires when it should stop: the leadership is lost, or the campaign was
 * aborted. The role is given up when the returned promise settles.
 */
export type LeaderHandler = (leadership: Leadership, signal: AbortSignal) => void | Promise<void>;

/** Passing troubles after which a campaign goes on. */
const PASSING = new Set(["UNREACHABLE", "TIMEOUT", "BUSY", "FENCED", "NOT_LEADER"]);

/**
 * Leads again and again. Handlers of two terms never overlap: the next candidacy starts after the last handler settled.
 *
 * @param acquire One candidacy.
 * @param rest Lets others go first, after giving the role up.
 */
export async function runCampaign(
  acquire: () => Promise<Leadership>,
  handler: LeaderHandler,
  limit: Limit,
  rest: () => Promise<void>,
): Promise<void> {
  for (;;) {
    if (limit.signal.aborted) return;
    let leadership: Leadership;
    try {
      leadership = await acquire();
    } catch (error) {
      if (limit.signal.aborted) return;
      if (!KrabkaError.is(error) || !PASSING.has(error.code)) throw error;
      await rest();
      continue;
    }
    await lead(leadership, handler, limit);
    const { loss } = leadership;
    if (loss?.error instanceof DuplicateMemberError || loss?.reason === "closed") throw loss.error;
    if (loss?.reason === "resigned") await rest();
  }
}

async function lead(leadership: Leadership, handler: LeaderHandler, limit: Limit): Promise<void> {
  try {
    await handler(leadership, AbortSignal.any([leadership.signal, limit.signal]));
  } catch (error) {
    // An error that only reports the loss or the abort is no failure of the handler's.
    if (error === leadership.signal.reason || (limit.signal.aborted && isAbort(error, limit))) {
      await leadership.close();
      return;
    }
    const lostBefore = leadership.loss !== undefined;
    await leadership.abandon(error);
    if (!(lostBefore && KrabkaError.is(error))) throw error;
  }
  await leadership.close();
}

const isAbort = (error: unknown, limit: Limit): boolean =>
  error === limit.signal.reason || (error instanceof Error && error.name === "AbortError");
