import { build, install, node } from "./steps.mjs";

// The main job on a fresh machine: installs what it needs, compiles, runs the example. The native transport is built only
// for those who ask for it.
const args = process.argv.slice(2);
const native = args.some((arg) => /rdkafka|mixed/.test(arg));
await install(["krabka-workspace", "@krabka/device-control...", ...(native ? ["@krabka/transport-rdkafka..."] : [])]);
await build("apps/device-control", ...(native ? ["packages/transport-rdkafka"] : []));
process.exitCode = await node("apps/device-control/dist/main.js", args);
