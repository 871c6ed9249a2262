import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { backoff, openStream, type StreamEvent } from "./api";

class FakeSource extends EventTarget {
  closed = false;
  close() {
    this.closed = true;
  }
  send(event: string, data: string) {
    this.dispatchEvent(new MessageEvent(event, { data }));
  }
  fail() {
    this.dispatchEvent(new Event("error"));
  }
}

let sources: FakeSource[];
let events: StreamEvent[];
const kinds = () => events.map(({ kind }) => kind);
const latest = () => {
  const source = sources.at(-1);
  if (source === undefined) throw new Error("nothing was opened");
  return source;
};
const start = () =>
  openStream(
    (event) => events.push(event),
    () => {
      sources.push(new FakeSource());
      return latest();
    },
  );

beforeEach(() => {
  sources = [];
  events = [];
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("backing off grows to a bound and never reaches zero", () => {
  expect([0, 1, 2, 3, 4, 5, 100].map((failures) => backoff(failures, 1))).toEqual([500, 1000, 2000, 4000, 8000, 8000, 8000]);
  expect(backoff(0, 0)).toBe(250);
});

test("snapshot and updates arrive as they were sent", () => {
  start();
  latest().send("snapshot", '{"seq":1}');
  latest().send("update", '{"seq":2}');
  expect(events).toEqual([
    { kind: "connecting" },
    { kind: "snapshot", overview: { seq: 1 } },
    { kind: "update", update: { seq: 2 } },
  ]);
});

test("a lost connection is closed and tried again for ever", () => {
  start();
  for (let round = 1; round <= 5; round += 1) {
    latest().fail();
    expect(latest().closed).toBe(true);
    vi.advanceTimersByTime(8_000);
    expect(sources.length).toBe(round + 1);
  }
});

/** What a browser still delivers from a connection that was given up must not mix with its successor. */
test("a dead connection is not heard any more", () => {
  start();
  const old = latest();
  old.fail();
  vi.advanceTimersByTime(8_000);
  old.send("snapshot", '{"seq":1}');
  old.fail();
  expect(kinds()).toEqual(["connecting", "lost", "connecting"]);
});

test("a torn message ends the connection, because only a snapshot can close the hole", () => {
  start();
  latest().send("snapshot", '{"seq":1}');
  latest().send("update", '{"seq":');
  expect(latest().closed).toBe(true);
  expect(kinds()).toEqual(["connecting", "snapshot", "lost"]);
});

test("a server that accepts and says nothing counts as gone; a quiet one after its snapshot does not", () => {
  start();
  vi.advanceTimersByTime(10_000);
  expect(kinds()).toEqual(["connecting", "lost"]);
  vi.advanceTimersByTime(500);
  latest().send("snapshot", '{"seq":1}');
  vi.advanceTimersByTime(3_600_000);
  expect(kinds()).toEqual(["connecting", "lost", "connecting", "snapshot"]);
});

test("a person can end the wait, but not disturb a living connection", () => {
  const stream = start();
  stream.retryNow();
  expect(sources.length).toBe(1);
  latest().fail();
  stream.retryNow();
  expect(sources.length).toBe(2);
  vi.advanceTimersByTime(8_000);
  expect(sources.length).toBe(2);
});

test("a closed stream stays closed", () => {
  const stream = start();
  latest().fail();
  stream.close();
  stream.retryNow();
  vi.advanceTimersByTime(60_000);
  expect(sources.length).toBe(1);
});
