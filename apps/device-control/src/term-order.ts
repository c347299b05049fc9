import { FencingToken } from "@krabka/core";

/** A command as it stands in the log. */
export interface LoggedCommand {
  readonly partition: number;
  readonly offset: bigint;
  /** Text of the token header, or undefined where a record carries none. */
  readonly token: string | undefined;
}

/** A record that contradicts the promise. */
export interface Violation {
  readonly partition: number;
  readonly offset: bigint;
  readonly fault: string;
}

/** Checks that in each partition no record of an older term follows one of a newer term. */
export function checkTermOrder(log: readonly LoggedCommand[]): readonly Violation[] {
  const newest = new Map<number, FencingToken>();
  const violations: Violation[] = [];
  const inOrder = [...log].sort((a, b) => (a.offset < b.offset ? -1 : a.offset > b.offset ? 1 : 0));
  for (const { partition, offset, token: text } of inOrder) {
    if (text === undefined) {
      violations.push({ partition, offset, fault: "carries no token" });
      continue;
    }
    const token = FencingToken.parse(text);
    const latest = newest.get(partition);
    if (latest !== undefined && token.compareTo(latest) < 0) {
      violations.push({ partition, offset, fault: `token ${token} follows the later ${latest}` });
      continue;
    }
    newest.set(partition, token);
  }
  return violations;
}
