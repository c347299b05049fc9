/** From the run to a candidate. */
export type ToCandidate =
  | { readonly kind: "resign" }
  /** Act like a machine that is suspended now and wakes up later, still believing that it leads. */
  | { readonly kind: "suspend" }
  | { readonly kind: "leave" };

/** From a candidate to the run. */
export type FromCandidate =
  | { readonly kind: "ready" }
  | { readonly kind: "leading"; readonly token: string }
  | { readonly kind: "written"; readonly token: string }
  | { readonly kind: "dispatched"; readonly device: string }
  | { readonly kind: "lost"; readonly token: string; readonly reason: string }
  | { readonly kind: "suspending" }
  | { readonly kind: "woke"; readonly believesToLead: boolean; readonly write: string; readonly dispatch: string }
  | { readonly kind: "failed"; readonly error: string };

/** From a device to the run. */
export type FromDevice = { readonly kind: "listening"; readonly url: string };
