import { build, install, node } from "./steps.mjs";

// The main job on a fresh machine: installs what it needs and nothing native, compiles, runs the example.
await install(["krabka-workspace", "@krabka/device-control..."]);
await build("apps/device-control");
process.exitCode = await node("apps/device-control/dist/main.js", process.argv.slice(2));
