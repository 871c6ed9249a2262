/**
 * The server's time, ticking once a second. Only the elapsed times listen, so a tick redraws a few
 * words and never a row. While the server is away the clock stands still: what cannot be seen is not
 * claimed to go on.
 */

import { useSyncExternalStore } from "react";

/** Network jitter must not make seconds stutter. */
const JITTER_MS = 400;

let offset: number | null = null;
let running = false;
let shown = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function tick() {
  if (!running) return;
  shown = Date.now() + (offset ?? 0);
  for (const listener of listeners) listener();
}

export function setServerTime(serverNow: number) {
  const measured = serverNow - Date.now();
  if (offset === null || Math.abs(measured - offset) > JITTER_MS) offset = measured;
  if (running) return;
  running = true;
  tick();
}

export function stopClock() {
  running = false;
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  timer ??= setInterval(tick, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

export function useServerNow(): number {
  return useSyncExternalStore(subscribe, () => shown);
}

const never = () => () => {};

/** The server's time, or a fixed moment that needs no ticking. */
export function useNowUnless(fixed: number | null): number {
  return useSyncExternalStore(fixed === null ? subscribe : never, () => fixed ?? shown);
}
