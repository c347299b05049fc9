import { EmbeddedTransport } from "@krabka/local";

// Owns a directory and serves it until it is killed, with files so small that every kind of them is under way at some kill.
const [directory = "", socketPath = ""] = process.argv.slice(2);
const transport = await EmbeddedTransport.open({
  directory,
  serve: { socketPath },
  segmentBytes: 16_384,
  checkpointAfterBytes: 16_384,
  slowReaderMs: 200,
});
await transport.prepare();
process.send?.({ kind: "ready", text: String(process.pid) });
process.on("disconnect", () => process.exit(1));
