import { describe, expect, it } from "vitest";
import { ClientConfig } from "../src/client-config.js";

describe("the configuration", () => {
  it("takes a list of brokers or librdkafka's own settings, which go to every client", () => {
    const list = new ClientConfig("a:9092,b:9092", 10_000);
    expect(list.admin).toMatchObject({ "bootstrap.servers": "a:9092,b:9092" });
    const given = new ClientConfig({ "metadata.broker.list": "a:9092", "security.protocol": "ssl" }, 10_000);
    for (const { global } of [given.ordinary(), given.reading("committed"), given.transactional("r", 10_000)]) {
      expect(global).toMatchObject({ "metadata.broker.list": "a:9092", "security.protocol": "ssl" });
    }
  });

  it.each(["transactional.id", "isolation.level", "statistics.interval.ms", "group.id"])("refuses %s", (name) => {
    expect(() => new ClientConfig({ "bootstrap.servers": "a:9092", [name]: "x" }, 10_000)).toThrow(name);
  });

  it("refuses to go without brokers", () => {
    expect(() => new ClientConfig("", 10_000)).toThrow("bootstrap.servers");
    expect(() => new ClientConfig({ "client.id": "x" }, 10_000)).toThrow("bootstrap.servers");
  });

  it("keeps a request's limit inside the transaction's", () => {
    const { global, topic } = new ClientConfig("a:9092", 10_000).transactional("r", 5_000);
    expect(global["socket.timeout.ms"]).toBe(4_900);
    expect(topic["message.timeout.ms"]).toBe(5_000);
  });

  it("gives up a silent connection of every client after the request's limit, unless the caller wants otherwise", () => {
    const limits = (brokers: ConstructorParameters<typeof ClientConfig>[0]) => {
      const config = new ClientConfig(brokers, 3_000);
      const clients = [config.ordinary(), config.reading("committed"), config.reading("uncommitted")];
      return [config.admin, ...clients.map(({ global }) => global)].map((settings) => settings["socket.timeout.ms"]);
    };
    expect(limits("a:9092")).toEqual([3_000, 3_000, 3_000, 3_000]);
    expect(limits({ "bootstrap.servers": "a:9092", "socket.timeout.ms": 5_000 })).toEqual([5_000, 5_000, 5_000, 5_000]);
  });
});
