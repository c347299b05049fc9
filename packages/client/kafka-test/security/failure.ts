import type { Role } from "@krabka/client";

/** A user may be told within this, though the caller would have waited for longer. */
export const PROMPT_MS = 5_000;

export interface Failure {
  readonly code: unknown;
  readonly role: Role | undefined;
  readonly message: string;
  readonly tookMs: number;
}

/** The error of a call that must fail, and how long it took. */
export const failureOf = async (call: Promise<unknown>): Promise<Failure> => {
  const startedAtMs = performance.now();
  const error = await call.then(
    () => new Error("succeeded"),
    (reason: unknown) => reason,
  );
  const { code, role, message } = error as Error & { code?: unknown; role?: Role };
  return { code, role, message, tookMs: performance.now() - startedAtMs };
};
