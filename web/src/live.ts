/** Joins the stream, the reducer and React. */

import { useSyncExternalStore } from "react";
import { openStream } from "./api";
import { setServerTime, stopClock } from "./clock";
import { EMPTY_VIEW, reduce, type View } from "./store";

/** Bursts of updates are drawn together. A timer, because animation frames stop in hidden tabs. */
const DRAW_EVERY_MS = 50;

export type Live = {
  subscribe(listener: () => void): () => void;
  view(): View;
  retryNow(): void;
};

export function startLive(): Live {
  let view = EMPTY_VIEW;
  let drawn = view;
  let pending: ReturnType<typeof setTimeout> | undefined;
  const listeners = new Set<() => void>();

  function draw() {
    pending = undefined;
    drawn = view;
    for (const listener of listeners) listener();
  }

  const stream = openStream((event) => {
    if (event.kind === "snapshot") setServerTime(event.overview.now);
    if (event.kind === "update") setServerTime(event.update.now);
    if (event.kind === "lost") stopClock();
    view = reduce(view, event, Date.now());
    pending ??= setTimeout(draw, DRAW_EVERY_MS);
  });
  addEventListener("online", stream.retryNow);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") stream.retryNow();
  });

  return {
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    view: () => drawn,
    retryNow: stream.retryNow,
  };
}

export function useView(live: Live): View {
  return useSyncExternalStore(live.subscribe, live.view);
}
