/**
 * Runs `work` under a signal that fires after `limitMs`, or with the caller's.
 *
 * Not `AbortSignal.any` with `AbortSignal.timeout`: Node 20 may collect the latter, which then never fires.
 */
export async function within<T>(
  limitMs: number,
  signal: AbortSignal | undefined,
  what: string,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const bounds = new AbortController();
  const stop = () => bounds.abort(signal?.reason);
  const timer = setTimeout(() => bounds.abort(new Error(`${what} took longer than ${limitMs} ms`)), limitMs);
  signal?.addEventListener("abort", stop, { once: true });
  try {
    return await work(bounds.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}
