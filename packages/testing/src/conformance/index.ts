// For authors of transports. Needs vitest.
export { describeTransport } from "./describe-transport.js";
export type {
  HarnessPower,
  HarnessTransportOptions,
  OpenTransaction,
  TransportHarness,
  TransportSubject,
  WireFault,
  WireFaultHandle,
} from "./harness.js";
