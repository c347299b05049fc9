import { once } from "node:events";
import { parentPort } from "node:worker_threads";
import { FileLog, LocalError } from "@krabka/local";

// Opens the directory that it is told and says how that went. A process keeps it open until it is killed, a worker thread
// until it is asked to close.
const directory = process.argv[2] ?? "";
try {
  const log = await FileLog.open(directory);
  if (parentPort === null) {
    process.stdout.write("open\n");
    setInterval(() => undefined, 1000);
  } else {
    parentPort.postMessage("open");
    await once(parentPort, "message");
    await log.close();
    parentPort.close();
  }
} catch (error) {
  const said = LocalError.is(error) ? error.code : String(error);
  if (parentPort === null) process.stdout.write(`${said}\n`);
  else parentPort.postMessage(said);
}
