import { describe, expect, it } from "vitest";
import { Statistics } from "../src/statistics.js";

const broker = (
  source: string,
  numbers: { disconnects?: number; timeouts?: number; req?: Record<string, number> },
) => ({
  source,
  disconnects: numbers.disconnects ?? 0,
  req_timeouts: numbers.timeouts ?? 0,
  req: numbers.req ?? {},
});

const text = (producerId: string, epoch: number, brokers: object = {}) =>
  `{"age": 1500, "brokers": ${JSON.stringify(brokers)}, "eos": {"idemp_state": "Assigned", "txn_state": "Ready",` +
  ` "producer_id": ${producerId}, "producer_epoch": ${epoch}}}`;

describe("statistics", () => {
  it("give the pair bit for bit, over 2^53 as well (A8)", () => {
    for (const id of ["0", "9007199254740993", "9223372036854775807"]) {
      expect(Statistics.parse(text(id, 7)).pair).toEqual({ producerId: BigInt(id), epoch: 7 });
    }
    expect(Statistics.parse(text("1", 32767)).pair).toEqual({ producerId: 1n, epoch: 32767 });
  });

  it("give no pair before there is one", () => {
    expect(Statistics.parse(text("-1", -1)).pair).toBeUndefined();
    expect(Statistics.parse(text("5", -1)).pair).toBeUndefined();
    expect(Statistics.parse('{"age": 1, "brokers": {}}').pair).toBeUndefined();
  });

  it("count requests over all brokers, and troubles of the coordinator's connection alone", () => {
    const brokers = {
      one: broker("learned", { disconnects: 5, req: { EndTxn: 1 } }),
      coordinator: broker("logical", { disconnects: 1, timeouts: 2, req: { EndTxn: 3, InitProducerId: 1 } }),
    };
    const statistics = Statistics.parse(text("1", 1, brokers));
    expect(statistics.sent("EndTxn")).toBe(4);
    expect(statistics.sent("InitProducerId")).toBe(1);
    expect(statistics.coordinatorTroubles).toBe(3);
    expect(statistics.clientAgeMs).toBe(1.5);
  });
});
