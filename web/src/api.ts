/** The server's wire types and the one connection to it. */

export type MissionStatus =
  | "running"
  | "paused"
  | "awaiting_answer"
  | "awaiting_approval"
  | "delivering"
  | "delivered"
  | "failed"
  | "cancelled";

export type TaskStatus =
  | "pending"
  | "in_progress"
  | "testing"
  | "ready_for_review"
  | "completed"
  | "blocked"
  | "failed"
  | "retrying"
  | "timed_out"
  | "paused"
  | "cancelled"
  | "rolled_back"
  | "dead_letter";

export type Level = "info" | "warn" | "error";

export type Mission = {
  id: string;
  goal: string;
  status: MissionStatus;
  status_reason: string | null;
  /** What a person has to do, as a command line. */
  needs: string | null;
  /** The phases of its tasks, in order; merging comes after the last. */
  flow: string[];
  branch: string;
  target: string;
  tip: string | null;
  opened_at: number;
  ended_at: number | null;
  tasks_total: number;
  tasks_completed: number;
  tasks_failed: number;
  tasks_running: number;
  cost_usd: number;
  budget_usd: number;
};

export type Question = { text: string; options: string[]; command: string };

export type Task = {
  id: number;
  mission: string;
  name: string;
  title: string;
  status: TaskStatus;
  phase: string | null;
  agent: string | null;
  attempts: number;
  retries: number;
  depends_on: string[];
  /** One sentence: why it is not running or not merged. */
  why: string | null;
  question: Question | null;
  started_at: number | null;
  ended_at: number | null;
  cost_usd: number;
  commit: string | null;
};

export type Agent = {
  id: string;
  role: string;
  status: "idle" | "busy";
  task: string | null;
  mission: string | null;
  since: number | null;
  cost_usd: number;
};

export type Activity = {
  seq: number;
  at: number;
  actor: string;
  text: string;
  level: Level;
  mission: string | null;
  task: string | null;
};

export type Cost = { spent_usd: number; reserved_usd: number; cap_usd: number };

/** Times are milliseconds since the epoch, by the server's clock. */
export type Overview = {
  project: string;
  seq: number;
  now: number;
  missions: Mission[];
  tasks: Task[];
  agents: Agent[];
  activity: Activity[];
  cost: Cost;
};

/** What changed: missions, tasks and agents come whole, activity holds only new lines. */
export type Update = Omit<Overview, "project">;

export type StreamEvent =
  | { kind: "snapshot"; overview: Overview }
  | { kind: "update"; update: Update }
  | { kind: "connecting" }
  | { kind: "lost"; retryInMs: number };

export type Stream = {
  /** Ends the wait before the next try. */
  retryNow(): void;
  close(): void;
};

type Source = Pick<EventTarget, "addEventListener"> & { close(): void };

const STREAM_URL = "/api/v1/stream";

const BACKOFF_FIRST_MS = 500;
/** A person who restarts the server should not wait longer than this to see it. */
const BACKOFF_MAX_MS = 8_000;
/** A proxy can accept the connection and say nothing: that is not a live server. */
const SNAPSHOT_WAIT_MS = 10_000;

/** Half of the delay is random, so that many open pages do not return in one instant. */
export function backoff(failures: number, random: number): number {
  const full = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(failures, 16));
  return Math.round(full / 2 + (full / 2) * random);
}

/**
 * Follows the server for ever. EventSource would reconnect by itself, but without backing off, without
 * saying when, and not at all after some errors; so each connection is used once.
 */
export function openStream(
  onEvent: (event: StreamEvent) => void,
  connect: (url: string) => Source = (url) => new EventSource(url),
): Stream {
  let source: Source | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  let closed = false;

  function start() {
    clearTimeout(timer);
    onEvent({ kind: "connecting" });
    const current = connect(STREAM_URL);
    source = current;

    const lose = () => {
      if (closed || source !== current) return;
      current.close();
      source = null;
      clearTimeout(timer);
      const retryInMs = backoff(failures, Math.random());
      failures += 1;
      timer = setTimeout(start, retryInMs);
      onEvent({ kind: "lost", retryInMs });
    };
    const receive = (read: (json: unknown) => StreamEvent) => (message: Event) => {
      if (closed || source !== current) return;
      let event: StreamEvent;
      try {
        event = read(JSON.parse((message as MessageEvent<string>).data));
      } catch {
        // A torn message leaves a hole that only a new snapshot can close.
        lose();
        return;
      }
      onEvent(event);
    };

    timer = setTimeout(lose, SNAPSHOT_WAIT_MS);
    current.addEventListener(
      "snapshot",
      receive((json) => {
        clearTimeout(timer);
        failures = 0;
        return { kind: "snapshot", overview: json as Overview };
      }),
    );
    current.addEventListener(
      "update",
      receive((json) => ({ kind: "update", update: json as Update })),
    );
    current.addEventListener("error", lose);
  }

  start();
  return {
    retryNow() {
      if (!closed && source === null) start();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      source?.close();
      source = null;
    },
  };
}
