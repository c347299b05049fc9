import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { FencedError, FenceGate, FencingToken, KrabkaError, TOKEN_HEADER } from "@krabka/core";
import type { FromDevice } from "./messages.js";

// One device: takes commands over HTTP and admits only those of the latest leader it has seen.
const gate = FenceGate.inMemory();

const server = createServer((request, response) => {
  request.resume();
  request.on("end", async () => {
    const answer = (status: number, body: object) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    try {
      const token = FencingToken.parse(String(request.headers[TOKEN_HEADER]));
      await gate.admit(token);
      answer(200, { admitted: token });
    } catch (error) {
      if (!KrabkaError.is(error)) throw error;
      answer(FencedError.is(error) ? 409 : 400, { refused: error.message, highest: gate.highest });
    }
  });
});

server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  const listening: FromDevice = { kind: "listening", url: `http://127.0.0.1:${port}/commands` };
  process.send?.(listening);
});
process.on("disconnect", () => process.exit(0));
