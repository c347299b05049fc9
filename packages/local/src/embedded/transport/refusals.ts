import { type ErrorCode, FencedError, KrabkaError, type Role } from "@krabka/core";
import type { BrokerAnswer, Refusal } from "../broker/request.js";
import { AnswerLost } from "../link/pending-request.js";

type Refused = Extract<BrokerAnswer, { status: "refused" }>;

const CODES: { readonly [R in Refusal]: ErrorCode } = {
  fenced: "FENCED",
  "unknown-topic": "UNKNOWN_TOPIC",
  "topic-differs": "TOPIC_MISCONFIGURED",
  invalid: "INVALID_ARGUMENT",
  "unknown-client": "UNREACHABLE",
  outdated: "UNREACHABLE",
};

/** The error for what the broker refused. */
export const refusalError = ({ reason, message }: Refused, role?: Role): KrabkaError =>
  reason === "fenced" ? new FencedError(message, { role }) : new KrabkaError(CODES[reason], message, { role });

/** The error for an answer that is lost for good. */
export const lostError = (error: unknown, what: string): unknown =>
  error instanceof AnswerLost
    ? new KrabkaError("UNREACHABLE", `No answer to ${what}, which may have been executed: ${error.message}`, {
        cause: error,
      })
    : error;

export const unexpected = (answer: BrokerAnswer, what: string): KrabkaError =>
  new KrabkaError("UNREACHABLE", `The broker answered ${answer.status} to ${what}`);
