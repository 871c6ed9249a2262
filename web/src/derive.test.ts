import { expect, test } from "vitest";
import type { Activity, Mission, Overview, Task, TaskStatus } from "./api";
import { matches, needs, needsSummary, taskFace } from "./derive";
import { duration, money } from "./format";

const mission = (fields: Partial<Mission>) => ({ id: "m1", goal: "a goal", target: "main", status: "running", status_reason: null, needs: null, ...fields }) as Mission;
const task = (fields: Partial<Task>) => ({ id: 1, mission: "m1", name: "2-1", title: "a task", status: "blocked", question: null, ...fields }) as Task;
const project = (missions: Mission[], tasks: Task[]) => ({ missions, tasks }) as Overview;

const QUESTION = { text: "Which?", options: ["this", "that"], command: "kapelle answer m1 2-1 1" };

test("nothing is asked of a person when nothing waits for one", () => {
  expect(needs(project([mission({})], [task({})]))).toEqual([]);
});

/** The mission waits for the very answer that its task asks for: one card, not two. */
test("a question is shown once", () => {
  const found = needs(project([mission({ status: "awaiting_answer", needs: "kapelle answer m1" })], [task({ question: QUESTION })]));
  expect(found).toEqual([
    { key: "m1/2-1", kind: "question", heading: "m1 · task 2-1 · a task", text: "Which?", options: ["this", "that"], command: QUESTION.command },
  ]);
});

test("an approval says what happens even when the server gives no reason", () => {
  const found = needs(project([mission({ status: "awaiting_approval", needs: "kapelle approve m1" })], []));
  expect(found).toEqual([
    { key: "m1", kind: "approval", heading: "m1 · a goal", text: "Approve the delivery to main.", options: [], command: "kapelle approve m1" },
  ]);
});

test("needs of other missions are not hidden by a question", () => {
  const missions = [mission({ status: "awaiting_answer", needs: QUESTION.command }), mission({ id: "m2", status: "paused", needs: "kapelle resume m2" })];
  expect(needsSummary(needs(project(missions, [task({ question: QUESTION })])))).toBe("1 question, 1 action");
});

/** A newer server must not break an older page. */
test("an unknown status is shown by its own word", () => {
  expect(taskFace({ status: "on_holiday" as TaskStatus, question: null })).toEqual({ word: "on holiday", icon: "circle", tone: "quiet" });
});

test("the filter wants every word, anywhere in the line", () => {
  const line: Activity = { seq: 1, at: 0, actor: "merger-1", text: "Merged e33fd0c", level: "warn", mission: "m1", task: "2-1" };
  expect(["", "  ", "MERGED", "2-1 merged", "warn m1", "merger-1 e33"].map((filter) => matches(line, filter))).toEqual(Array(6).fill(true));
  expect(["3-1", "merged 3-1", "error"].map((filter) => matches(line, filter))).toEqual(Array(3).fill(false));
});

test("small money is not shown as none, and the dust of adding floats not as money", () => {
  expect([0, 1e-16, -1e-16, 0.004, 0.01, 1.239, 1234.5].map(money)).toEqual(["$0.00", "$0.00", "$0.00", "<$0.01", "$0.01", "$1.24", "$1,234.50"]);
});

test("durations read like a clock and never go below zero", () => {
  expect([-5, 999, 7_000, 760_000, 11_100_000, 183_600_000].map(duration)).toEqual(["0:00", "0:00", "0:07", "12:40", "3:05:00", "2 d 3 h"]);
});
