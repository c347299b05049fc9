import { Deadline } from "@krabka/core";
import { describe, expect, it } from "vitest";
import { ConnectionTrouble } from "../src/connection-trouble.js";
import { textOf } from "../src/native-binding.js";
import { systemClock } from "../src/system-clock.js";

const entry = (words: string): string =>
  `[thrd:sasl_ssl://kafka:9093/bootstrap]: sasl_ssl://kafka:9093/bootstrap: ${words} (after 342ms in state AUTH_REQ)`;

const AUTHENTICATION = -169;
const SSL = -181;
const ALL_BROKERS_DOWN = -187;
const CLUSTER_AUTHORIZATION_FAILED = 31;

const troubleOf = (words: string | undefined, ...codes: readonly number[]): ConnectionTrouble => {
  const trouble = new ConnectionTrouble();
  if (words !== undefined) trouble.logged("FAIL", entry(words));
  for (const code of codes) trouble.failed(code, textOf(code));
  return trouble;
};

describe("the trouble of a connection", () => {
  it("of a login that was refused is for good, in the broker's words", () => {
    const { reason, refusal } = troubleOf("SASL authentication error: Invalid password", AUTHENTICATION);
    expect(refusal).toBe(reason);
    expect(reason).toMatchObject({
      code: "UNAUTHORIZED",
      message: "Reaching a broker: sasl_ssl://kafka:9093/bootstrap: SASL authentication error: Invalid password (-169)",
    });
  });

  it("of a login that was cut off may pass", () => {
    const words =
      "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported mechanisms: ";
    const { reason, refusal } = troubleOf(words, AUTHENTICATION);
    expect(refusal).toBeUndefined();
    expect(reason?.code).toBe("UNREACHABLE");
  });

  it("of TLS may pass, and is not hidden by the news that no broker is left", () => {
    const { reason, refusal } = troubleOf("SSL handshake failed: certificate verify failed", SSL, ALL_BROKERS_DOWN);
    expect(refusal).toBeUndefined();
    expect(reason).toMatchObject({
      code: "UNREACHABLE",
      message: expect.stringContaining("certificate verify failed"),
    });
  });

  it("without a code is what was logged", () => {
    const { reason } = troubleOf("Disconnected: connection closed by peer");
    expect(reason).toMatchObject({
      code: "UNREACHABLE",
      message: "Reaching a broker: sasl_ssl://kafka:9093/bootstrap: Disconnected: connection closed by peer",
    });
  });

  it("does not lend its words to an error of another kind", () => {
    const { refusal } = troubleOf("Disconnected", CLUSTER_AUTHORIZATION_FAILED);
    expect(refusal?.message).toBe("Reaching a broker: Broker: Cluster authorization failed (31)");
  });

  it("is over when a broker answers", () => {
    const trouble = troubleOf("SSL handshake failed", SSL);
    trouble.passed();
    expect(trouble.reason).toBeUndefined();
  });
});

describe("a call that waits for a connection", () => {
  it("ends with what kept it, not with a bare TIMEOUT", async () => {
    const deadline = new Deadline(systemClock, { timeoutMs: 1 }, 1);
    deadline.waitsFor(troubleOf("SSL handshake failed: certificate verify failed", SSL));
    await expect(deadline.pause(1_000)).rejects.toMatchObject({ code: "UNREACHABLE", cause: { code: "TIMEOUT" } });
  });

  it("ends with TIMEOUT where nothing is known", async () => {
    const deadline = new Deadline(systemClock, { timeoutMs: 1 }, 1);
    deadline.waitsFor(new ConnectionTrouble());
    await expect(deadline.pause(1_000)).rejects.toMatchObject({ code: "TIMEOUT" });
  });
});
