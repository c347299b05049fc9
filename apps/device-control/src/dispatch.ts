import { type FencingToken, TOKEN_HEADER } from "@krabka/core";
import type { Command } from "./command.js";

/** Thrown when the device has seen a later leader. */
export class DispatchRefused extends Error {}

/** Hands a command to a device, with the token that proves the sender's leadership. */
export async function dispatch(url: string, command: Command, token: FencingToken): Promise<void> {
  const response = await fetch(url, {
    method: "POST",
    headers: { [TOKEN_HEADER]: String(token), "content-type": "application/json" },
    body: JSON.stringify(command),
  });
  const body = await response.text();
  if (response.status === 409) throw new DispatchRefused(body);
  if (!response.ok) throw new Error(`The device answered ${response.status}: ${body}`);
}
