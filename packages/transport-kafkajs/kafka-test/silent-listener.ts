import type { FeedListener } from "@krabka/core";

export const silentListener: FeedListener = {
  onRecords: () => undefined,
  onUncommitted: () => undefined,
  onReset: () => undefined,
  onMalformed: () => undefined,
  onError: () => undefined,
};
