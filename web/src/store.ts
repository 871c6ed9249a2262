/** The page's whole state, as a pure fold over what the stream says. */

import type { Activity, Agent, Mission, Overview, StreamEvent, Task, Update } from "./api";

/** A day's work of a busy team scrolls past a reader long before this; memory and the page stay small. */
export const ACTIVITY_LINES_MAX = 1_000;

export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** `retryAt` is by this machine's clock; null while a try is under way. */
  | { state: "reconnecting"; retryAt: number | null };

export type View = { overview: Overview | null; connection: Connection };

export const EMPTY_VIEW: View = { overview: null, connection: { state: "connecting" } };

export function reduce(view: View, event: StreamEvent, localNow: number): View {
  switch (event.kind) {
    case "snapshot":
      return { overview: applySnapshot(view.overview, event.overview), connection: { state: "live" } };
    case "update":
      return view.overview === null ? view : { ...view, overview: applyUpdate(view.overview, event.update) };
    case "connecting":
      return view.connection.state === "reconnecting"
        ? { ...view, connection: { state: "reconnecting", retryAt: null } }
        : view;
    case "lost":
      return { ...view, connection: { state: "reconnecting", retryAt: localNow + event.retryInMs } };
  }
}

/**
 * A snapshot replaces everything. Older activity lines are kept only where they join the new ones
 * without a gap: a log with a silent hole is worse than a short one.
 */
export function applySnapshot(before: Overview | null, snapshot: Overview): Overview {
  const sorted: Overview = {
    ...snapshot,
    missions: [...snapshot.missions].sort(newestMissionFirst),
    tasks: [...snapshot.tasks].sort(byTaskId),
    agents: [...snapshot.agents].sort(byAgentId),
    activity: snapshot.activity.slice(-ACTIVITY_LINES_MAX),
  };
  const first = snapshot.activity[0];
  const last = before?.activity.at(-1);
  const continues =
    before !== null && before.project === snapshot.project && before.seq <= snapshot.seq;
  if (!continues || first === undefined || last === undefined || first.seq > last.seq) return sorted;
  const older = before.activity.filter((line) => line.seq < first.seq);
  return { ...sorted, activity: [...older, ...sorted.activity].slice(-ACTIVITY_LINES_MAX) };
}

/**
 * What did not change keeps its identity, so that memoised rows are not drawn again. An update from
 * the past is ignored, and the same update twice changes nothing.
 */
export function applyUpdate(before: Overview, update: Update): Overview {
  if (update.seq < before.seq) return before;
  return {
    project: before.project,
    seq: update.seq,
    now: update.now,
    missions: merge(before.missions, update.missions, (mission) => mission.id, newestMissionFirst),
    tasks: merge(before.tasks, update.tasks, (task) => task.id, byTaskId),
    agents: merge(before.agents, update.agents, (agent) => agent.id, byAgentId),
    activity: append(before.activity, update.activity),
    cost: update.cost,
  };
}

function merge<T, K>(before: T[], changed: T[], key: (item: T) => K, order: (a: T, b: T) => number): T[] {
  if (changed.length === 0) return before;
  const pending = new Map(changed.map((item) => [key(item), item]));
  const merged = before.map((item) => {
    const newer = pending.get(key(item));
    pending.delete(key(item));
    return newer ?? item;
  });
  return pending.size === 0 ? merged : [...merged, ...pending.values()].sort(order);
}

function append(before: Activity[], lines: Activity[]): Activity[] {
  const last = before.at(-1)?.seq ?? -1;
  const fresh = lines.filter((line) => line.seq > last);
  return fresh.length === 0 ? before : [...before, ...fresh].slice(-ACTIVITY_LINES_MAX);
}

const newestMissionFirst = (a: Mission, b: Mission) =>
  b.opened_at - a.opened_at || natural(b.id, a.id);
const byTaskId = (a: Task, b: Task) => a.id - b.id;
const byAgentId = (a: Agent, b: Agent) => natural(a.id, b.id);

const collator = new Intl.Collator("en", { numeric: true });
const natural = (a: string, b: string) => collator.compare(a, b);
