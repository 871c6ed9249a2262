import { describe, expect, test } from "vitest";
import type { Activity, Agent, Mission, Overview, Task, Update } from "./api";
import { ACTIVITY_LINES_MAX, applySnapshot, applyUpdate, EMPTY_VIEW, reduce } from "./store";

const mission = (id: string, fields: Partial<Mission> = {}): Mission => ({
  id, goal: "a goal", status: "running", status_reason: null, needs: null, flow: ["green"], branch: `kapelle/${id}`, target: "main", tip: null, opened_at: 0,
  ended_at: null, tasks_total: 2, tasks_completed: 0, tasks_failed: 0, tasks_running: 0, cost_usd: 0, budget_usd: 1, ...fields,
});
const task = (id: number, fields: Partial<Task> = {}): Task => ({
  id, mission: "m1", name: `1-${id}`, title: "a task", status: "pending", phase: null, agent: null, attempts: 0, retries: 0, depends_on: [],
  why: null, question: null, started_at: null, ended_at: null, cost_usd: 0, commit: null, ...fields,
});
const agent = (id: string, fields: Partial<Agent> = {}): Agent => ({
  id, role: "developer", status: "idle", task: null, mission: null, since: null, cost_usd: 0, ...fields,
});
const line = (seq: number): Activity => ({ seq, at: seq, actor: "developer-1", text: `line ${seq}`, level: "info", mission: "m1", task: null });
const lines = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => line(from + index));

const COST = { spent_usd: 0, reserved_usd: 0, cap_usd: 10 };
const overview = (fields: Partial<Overview> = {}): Overview => ({
  project: "demo", seq: 10, now: 1_000, missions: [], tasks: [], agents: [], activity: [], cost: COST, ...fields,
});
const update = (fields: Partial<Update> = {}): Update => ({
  seq: 11, now: 2_000, missions: [], tasks: [], agents: [], activity: [], cost: COST, ...fields,
});

describe("an update", () => {
  test("replaces what changed and keeps the identity of what did not, so that only changed rows are drawn", () => {
    const before = overview({ missions: [mission("m1")], tasks: [task(1), task(2)], agents: [agent("developer-1")] });
    const changed = task(2, { status: "in_progress" });
    const cost = { ...COST, spent_usd: 0.5 };
    const after = applyUpdate(before, update({ tasks: [changed], cost, activity: [line(11)] }));
    expect(after).toEqual({ ...before, seq: 11, now: 2_000, tasks: [task(1), changed], cost, activity: [line(11)] });
    expect(after.tasks[0]).toBe(before.tasks[0]);
    expect(after.missions).toBe(before.missions);
    expect(after.agents).toBe(before.agents);
  });

  test("puts new things in their place, whatever the order of arrival", () => {
    const before = overview({ missions: [mission("m1", { opened_at: 1 })], tasks: [task(3)], agents: [agent("developer-10")] });
    const after = applyUpdate(
      before,
      update({ missions: [mission("m2", { opened_at: 2 })], tasks: [task(4), task(1)], agents: [agent("tester-1"), agent("developer-2")] }),
    );
    expect(after.missions.map(({ id }) => id)).toEqual(["m2", "m1"]);
    expect(after.tasks.map(({ id }) => id)).toEqual([1, 3, 4]);
    expect(after.agents.map(({ id }) => id)).toEqual(["developer-2", "developer-10", "tester-1"]);
  });

  test("from the past is ignored", () => {
    const before = overview({ tasks: [task(1, { status: "completed" })] });
    expect(applyUpdate(before, update({ seq: 9, tasks: [task(1)] }))).toBe(before);
  });

  test("applied twice is the same as applied once", () => {
    const change = update({ missions: [mission("m1")], tasks: [task(1)], agents: [agent("a")], activity: lines(10, 11) });
    const once = applyUpdate(overview(), change);
    expect(applyUpdate(once, change)).toEqual(once);
  });

  test("keeps both lines when one journal entry speaks twice", () => {
    const twins = [line(11), { ...line(11), text: "and this" }];
    expect(applyUpdate(overview({ activity: [line(10)] }), update({ activity: twins })).activity).toEqual([line(10), ...twins]);
  });

  test("lets the log forget its oldest lines", () => {
    const before = overview({ activity: lines(1, ACTIVITY_LINES_MAX) });
    const after = applyUpdate(before, update({ seq: 2_000, activity: lines(ACTIVITY_LINES_MAX + 1, ACTIVITY_LINES_MAX + 5) }));
    expect(after.activity).toEqual(lines(6, ACTIVITY_LINES_MAX + 5));
  });

  test("leaves its input untouched", () => {
    const before = overview({ tasks: [task(2)], activity: [line(1)] });
    const copy = structuredClone(before);
    applyUpdate(before, update({ tasks: [task(1), task(2, { status: "failed" })], activity: [line(11)] }));
    expect(before).toEqual(copy);
  });
});

describe("a snapshot", () => {
  test("replaces everything: what the server forgot must not stay on the page", () => {
    const before = overview({ missions: [mission("m1")], tasks: [task(1)], agents: [agent("developer-1")] });
    const snapshot = overview({ seq: 20, missions: [mission("m2")], tasks: [task(7, { mission: "m2" })] });
    expect(applySnapshot(before, snapshot)).toEqual(snapshot);
  });

  test("keeps older lines that join it without a gap", () => {
    const after = applySnapshot(overview({ activity: lines(1, 10) }), overview({ seq: 12, activity: lines(8, 12) }));
    expect(after.activity).toEqual(lines(1, 12));
  });

  test("drops older lines across a gap: a log with a silent hole is worse than a short one", () => {
    const after = applySnapshot(overview({ activity: lines(1, 10) }), overview({ seq: 30, activity: lines(20, 30) }));
    expect(after.activity).toEqual(lines(20, 30));
  });

  test("drops the lines of another project, and of a journal that began again", () => {
    const before = overview({ seq: 10, activity: lines(1, 10) });
    expect(applySnapshot(before, overview({ project: "other", seq: 12, activity: lines(8, 12) })).activity).toEqual(lines(8, 12));
    expect(applySnapshot(before, overview({ seq: 9, activity: lines(8, 9) })).activity).toEqual(lines(8, 9));
  });
});

describe("the connection", () => {
  test("keeps the last state on the page while the server is away, and says when it tries again", () => {
    const live = reduce(EMPTY_VIEW, { kind: "snapshot", overview: overview() }, 0);
    expect(live.connection).toEqual({ state: "live" });
    const lost = reduce(live, { kind: "lost", retryInMs: 500 }, 1_000);
    expect(lost).toEqual({ overview: live.overview, connection: { state: "reconnecting", retryAt: 1_500 } });
    const trying = reduce(lost, { kind: "connecting" }, 1_500);
    expect(trying).toEqual({ overview: live.overview, connection: { state: "reconnecting", retryAt: null } });
    expect(reduce(trying, { kind: "snapshot", overview: overview({ seq: 12 }) }, 1_600).connection).toEqual({ state: "live" });
  });

  test("an update before any snapshot is not a state", () => {
    expect(reduce(EMPTY_VIEW, { kind: "update", update: update() }, 0)).toBe(EMPTY_VIEW);
  });
});
