import type {} from "vitest";
import type { TestProject } from "vitest/node";
import { connectOrStart } from "./connect.js";

declare module "vitest" {
  interface ProvidedContext {
    /** The brokers that all test files of a run share. */
    kafkaBootstrap: string;
  }
}

/** Starts one broker for the whole run; `inject("kafkaBootstrap")` in a test tells where. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const cluster = await connectOrStart();
  project.provide("kafkaBootstrap", cluster.bootstrap);
  return () => cluster.close();
}
