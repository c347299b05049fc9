import kafkajs from "kafkajs";
import { describe, expect, it } from "vitest";
import { openWire } from "../src/kafkajs-internals.js";

const CONFIG = { brokers: ["127.0.0.1:1"], logLevel: kafkajs.logLevel.NOTHING };

const changed = (change: (createCluster: unknown) => unknown): kafkajs.Kafka => {
  const kafka = new kafkajs.Kafka(CONFIG);
  const internals = kafka as unknown as Record<symbol, unknown>;
  const symbol = Object.getOwnPropertySymbols(kafka).find(({ description }) => description?.includes("createCluster"));
  if (symbol === undefined) throw new Error("This kafkajs has no createCluster");
  internals[symbol] = change(internals[symbol]);
  return kafka;
};

describe("the check of kafkajs's internals", () => {
  it("finds what it needs in this kafkajs", async () => {
    await openWire(CONFIG, 1000).close();
  });

  it("names a createCluster that is gone", () => {
    const kafka = changed(() => undefined);
    expect(() => openWire(kafka, 1000)).toThrow(/lacks the private createCluster of Kafka; version 2\.2\.4 is wanted/);
  });

  it("names a pool builder that is gone", () => {
    const kafka = changed(() => () => ({}));
    expect(() => openWire(kafka, 1000)).toThrow(/lacks Cluster\.connectionPoolBuilder\.build\(\)/);
  });

  it("names what a connection pool lacks when it connects", async () => {
    const kafka = changed(() => () => ({ connectionPoolBuilder: { build: async () => ({ host: "h", port: 1 }) } }));
    const wire = openWire(kafka, 1000);
    const request = wire.requestAny({
      api: { name: "Metadata", key: 3, version: 8, flexible: false },
      encode: () => new Uint8Array(),
      timeoutMs: 1000,
    });
    await expect(request).rejects.toMatchObject({
      code: "UNSUPPORTED",
      message: expect.stringContaining("getConnection()"),
    });
    await wire.close();
  });
});
