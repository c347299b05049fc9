import type { ProxiedRequest } from "@krabka/tooling-kafka";

// Requests as the proxy sees them, and answers as a broker would make them up: all that follows the correlation id.

export const INIT_PRODUCER_ID = 22;
export const ADD_PARTITIONS_TO_TXN = 24;
export const END_TXN = 26;

export const COORDINATOR_NOT_AVAILABLE = 15;
export const CONCURRENT_TRANSACTIONS = 51;
export const TRANSACTION_ABORTABLE = 120;

/** The last byte of a plain EndTxn, up to version 2. */
export const isCommit = ({ body }: ProxiedRequest): boolean => body[body.length - 1] === 1;

export const endTxnAnswer = (code: number): Buffer => {
  const answer = Buffer.alloc(6);
  answer.writeInt16BE(code, 4);
  return answer;
};

export const initProducerIdAnswer =
  (code: number) =>
  ({ apiVersion }: ProxiedRequest): Buffer => {
    const answer = Buffer.alloc(16, 0xff);
    answer.writeInt32BE(0, 0);
    answer.writeInt16BE(code, 4);
    const tags = Buffer.alloc(apiVersion >= 2 ? 1 : 0);
    return Buffer.concat([tags, answer, tags]);
  };

/** Answers every partition of an AddPartitionsToTxn request (up to version 2) with the same code. */
export const addPartitionsAnswer =
  (code: number) =>
  ({ body }: ProxiedRequest): Buffer => {
    let at = 2 + body.readInt16BE(0) + 8 + 2;
    const copied: Buffer[] = [Buffer.alloc(4)];
    const copy = (bytes: number): Buffer => {
      const part = body.subarray(at, at + bytes);
      copied.push(part);
      at += bytes;
      return part;
    };
    const codeBytes = Buffer.alloc(2);
    codeBytes.writeInt16BE(code);
    for (let topics = copy(4).readInt32BE(); topics > 0; topics--) {
      copy(2 + body.readInt16BE(at));
      for (let partitions = copy(4).readInt32BE(); partitions > 0; partitions--) {
        copy(4);
        copied.push(codeBytes);
      }
    }
    return Buffer.concat(copied);
  };
