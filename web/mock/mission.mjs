// A believable mission of eight tasks, as a list of steps over the wire types of src/api.ts. It has two
// retries, a question that a scripted person answers, and a final approval.

const GOAL = "Rate-limit the public API: per-key limits, 429 with Retry-After, metrics and documentation";

const TASKS = [
  ["1-1", "Token bucket that takes its clock as an argument", []],
  ["1-2", "Read per-key limits from the configuration", []],
  ["1-3", "Look up the caller's plan by API key", []],
  ["2-1", "Middleware that refuses with 429 when the bucket is empty", ["1-1", "1-2"]],
  ["2-2", "Retry-After and RateLimit response headers", ["2-1"]],
  ["2-3", "Count refused requests per key and route", ["2-1", "1-3"]],
  ["3-1", "Load test: 1,000 keys share one process fairly", ["2-2"]],
  ["3-2", "Guide and reference for operators", ["2-2", "2-3"]],
];

const AGENTS = [
  ["developer-1", "developer"],
  ["developer-2", "developer"],
  ["developer-3", "developer"],
  ["tester-1", "tester"],
  ["merger-1", "merger"],
];

const hash = (text) => {
  let value = 0x811c9dc5;
  for (const char of text) value = Math.imul(value ^ char.charCodeAt(0), 0x01000193) >>> 0;
  return (value.toString(16).padStart(8, "0") + "b7f3".repeat(8)).slice(0, 40);
};

/** The project before anything was asked of it. */
export function emptyProject(now) {
  return {
    project: "ledger-api",
    seq: 1,
    now,
    missions: [],
    tasks: [],
    agents: AGENTS.map(([id, role]) => ({ id, role, status: "idle", task: null, mission: null, since: now, cost_usd: 0 })),
    activity: [],
    cost: { spent_usd: 0, reserved_usd: 0, cap_usd: 75 },
  };
}

/** A mission of many tasks that stand in all states, to see that long lists stay smooth. */
export function largeProject(now, count) {
  const project = emptyProject(now);
  const statuses = ["completed", "completed", "in_progress", "testing", "ready_for_review", "pending", "blocked", "failed", "retrying", "timed_out", "paused", "cancelled", "rolled_back", "dead_letter"];
  project.missions.push(newMission(now, count));
  for (let id = 1; id <= count; id++) {
    const status = statuses[id % statuses.length];
    project.tasks.push({ ...newTask(id, `${Math.ceil(id / 9)}-${((id - 1) % 9) + 1}`, `Port module ${id} to the new error type`, []), status, phase: "green", attempts: 1, started_at: now - id * 1000 });
  }
  return project;
}

function newMission(now, total) {
  return {
    id: "m1", goal: GOAL, status: "running", status_reason: null, needs: null, flow: ["red", "green", "refactor"], branch: "kapelle/m1", target: "main", tip: null,
    opened_at: now, ended_at: null, tasks_total: total, tasks_completed: 0, tasks_failed: 0, tasks_running: 0, cost_usd: 0, budget_usd: 6,
  };
}

function newTask(id, name, title, depends_on) {
  return {
    id, mission: "m1", name, title, status: "pending", phase: null, agent: null, attempts: 0, retries: 0, depends_on, why: null,
    question: null, started_at: null, ended_at: null, cost_usd: 0, commit: null,
  };
}

/**
 * Steps of the mission; each changes the project and returns nothing. `at(n, step)` puts a step at
 * beat n; beats are played in order, one per pace.
 */
export function missionSteps() {
  const beats = [];
  const at = (beat, step) => (beats[beat] ??= []).push(step);
  const task = (project, name) => project.tasks.find((candidate) => candidate.name === name);
  const agent = (project, id) => project.agents.find((candidate) => candidate.id === id);

  const say = (project, actor, text, options = {}) =>
    project.activity.push({ seq: ++project.seq, at: project.now, actor, text, level: options.level ?? "info", mission: "m1", task: options.task ?? null });

  const spend = (project, name, id, usd) => {
    const owner = task(project, name);
    owner.cost_usd += usd;
    agent(project, id).cost_usd += usd;
    project.missions[0].cost_usd += usd;
    project.cost.spent_usd += usd;
  };

  const explainWaiting = (project) => {
    for (const waiting of project.tasks.filter((candidate) => candidate.status === "pending")) {
      const open = waiting.depends_on.filter((name) => task(project, name).status !== "completed");
      waiting.why = open.length === 0 ? "Ready; waits for a free developer." : `Waits for ${open.join(" and ")} to merge.`;
    }
  };

  const start = (beat, name, id) =>
    at(beat, (project) => {
      const chosen = task(project, name);
      Object.assign(chosen, { status: "in_progress", phase: "red", agent: id, why: null, attempts: chosen.attempts + 1, started_at: chosen.started_at ?? project.now });
      Object.assign(agent(project, id), { status: "busy", task: name, mission: "m1", since: project.now });
      project.cost.reserved_usd += 0.4;
      say(project, "orchestrator", `gave task ${name} to ${id}`, { task: name });
    });

  const phase = (beat, name, id, next, text, status = "in_progress") =>
    at(beat, (project) => {
      Object.assign(task(project, name), { phase: next, status });
      spend(project, name, id, 0.07 + (name.charCodeAt(2) % 4) * 0.03);
      say(project, id, text, { task: name });
    });

  const finish = (beat, name, id) => {
    at(beat, (project) => {
      Object.assign(task(project, name), { status: "ready_for_review", phase: "verify", agent: "merger-1", why: "In the merge queue; its candidate is being checked." });
      Object.assign(agent(project, id), { status: "idle", task: null, mission: null, since: project.now });
      Object.assign(agent(project, "merger-1"), { status: "busy", task: name, mission: "m1", since: project.now });
      project.cost.reserved_usd = Math.max(0, project.cost.reserved_usd - 0.4);
      say(project, "merger-1", `built candidate ${hash(name + "c").slice(0, 7)} on kapelle/m1 and runs 3 checks on it`, { task: name });
    });
    at(beat + 2, (project) => {
      const commit = hash(name);
      Object.assign(task(project, name), { status: "completed", phase: "complete", agent: id, why: null, ended_at: project.now, commit });
      const merger = agent(project, "merger-1");
      if (merger.task === name) Object.assign(merger, { status: "idle", task: null, mission: null, since: project.now });
      project.missions[0].tip = commit;
      say(project, "merger-1", `merged ${commit.slice(0, 7)}; 3 of 3 checks passed on that commit`, { task: name });
    });
  };

  const whole = (beat, name, id, texts) => {
    start(beat, name, id);
    phase(beat + 2, name, id, "green", texts[0]);
    phase(beat + 4, name, id, "refactor", texts[1]);
    phase(beat + 6, name, id, "verify", texts[2], "testing");
    finish(beat + 7, name, id);
  };

  at(0, (project) => {
    project.missions.push(newMission(project.now, TASKS.length));
    say(project, "you", "opened mission m1");
  });
  at(1, (project) => {
    TASKS.forEach(([name, title, depends], index) => project.tasks.push(newTask(index + 1, name, title, depends)));
    say(project, "orchestrator", "planned 8 tasks in 3 convoys; estimate $2.40, at most $6.00");
  });

  whole(2, "1-1", "developer-1", ["2 new tests fail: no refill() yet", "all 2 tests pass", "tidied; 41 tests pass, test files untouched"]);
  start(2, "1-2", "developer-2");
  phase(4, "1-2", "developer-2", "green", "3 new tests fail: limits are not parsed");
  at(6, (project) => {
    Object.assign(task(project, "1-2"), { status: "retrying", retries: 1, why: "Test files changed in the green phase; tries again with that explained." });
    say(project, "orchestrator", "refused attempt 1: tests/config.rs was changed after the red phase", { level: "warn", task: "1-2" });
  });
  at(8, (project) => {
    Object.assign(task(project, "1-2"), { status: "in_progress", phase: "green", attempts: 2, why: null });
    say(project, "developer-2", "started attempt 2 with the reason of the refusal", { task: "1-2" });
  });
  phase(10, "1-2", "developer-2", "refactor", "all 3 tests pass, test files byte-identical");
  phase(12, "1-2", "developer-2", "verify", "44 tests pass on the rebased change", "testing");
  finish(13, "1-2", "developer-2");
  whole(3, "1-3", "developer-3", ["1 new test fails: plan_of() is missing", "1 new test passes", "42 tests pass"]);

  start(16, "2-1", "developer-1");
  phase(18, "2-1", "developer-1", "green", "4 new tests fail: requests are never refused");
  at(20, (project) => {
    const asking = task(project, "2-1");
    asking.question = {
      text: "Should a key without a configured plan be refused, or get the limits of the free plan?",
      options: ["Refuse it with 403", "Use the free plan's limits"],
      command: "kapelle answer m1 2-1 2",
    };
    Object.assign(asking, { status: "blocked", why: "Waits for your answer." });
    Object.assign(project.missions[0], { status: "awaiting_answer", needs: asking.question.command, status_reason: "Task 2-1 asks a question; its dependents wait." });
    Object.assign(agent(project, "developer-1"), { status: "idle", task: null, mission: null, since: project.now });
    say(project, "developer-1", "asks: refuse a key without a plan, or use the free plan?", { level: "warn", task: "2-1" });
  });
  at(30, (project) => {
    Object.assign(task(project, "2-1"), { status: "in_progress", question: null, why: null, attempts: 2 });
    Object.assign(project.missions[0], { status: "running", needs: null, status_reason: null });
    Object.assign(agent(project, "developer-1"), { status: "busy", task: "2-1", mission: "m1", since: project.now });
    say(project, "you", "answered: Use the free plan's limits", { task: "2-1" });
  });
  phase(32, "2-1", "developer-1", "refactor", "all 4 tests pass");
  phase(34, "2-1", "developer-1", "verify", "48 tests pass on the rebased change", "testing");
  finish(35, "2-1", "developer-1");

  whole(38, "2-2", "developer-2", ["2 new tests fail: no Retry-After header", "all 2 tests pass", "50 tests pass"]);
  whole(40, "2-3", "developer-3", ["2 new tests fail: counter is not registered", "all 2 tests pass", "52 tests pass"]);

  start(48, "3-1", "developer-1");
  phase(50, "3-1", "developer-1", "green", "1 new test fails: key 812 starves");
  at(52, (project) => {
    Object.assign(task(project, "3-1"), { status: "retrying", retries: 1, why: "The agent's process ended with signal 9; waits 2 s, then tries again." });
    say(project, "orchestrator", "attempt 1 ended: out of memory at 512 MiB; work kept under refs/kapelle/kept/3-1", { level: "error", task: "3-1" });
  });
  whole(51, "3-2", "developer-2", ["1 new test fails: the guide has no page on limits", "the page builds, links resolve", "53 tests pass"]);
  at(55, (project) => {
    Object.assign(task(project, "3-1"), { status: "in_progress", attempts: 2, why: null });
    say(project, "developer-1", "started attempt 2 with smaller batches", { task: "3-1" });
  });
  phase(57, "3-1", "developer-1", "refactor", "1,000 keys: slowest gets 0.97 of its share");
  phase(59, "3-1", "developer-1", "verify", "54 tests pass on the rebased change", "testing");
  finish(61, "3-1", "developer-1");

  at(65, (project) => {
    Object.assign(project.missions[0], { status: "awaiting_approval", needs: "kapelle approve m1", status_reason: "All 8 tasks are merged and checked. main moves only with your approval." });
    say(project, "orchestrator", "all tasks merged; asks for approval to move main", { level: "warn" });
  });
  at(76, (project) => {
    Object.assign(project.missions[0], { status: "delivering", needs: null, status_reason: null });
    say(project, "you", "approved the delivery of 9 commits to main");
  });
  at(78, (project) => {
    Object.assign(project.missions[0], { status: "delivered", ended_at: project.now });
    project.cost.reserved_usd = 0;
    say(project, "orchestrator", "main moved to the approved commit; mission delivered");
  });

  return Array.from(beats, (steps) => (project) => {
    for (const step of steps ?? []) step(project);
    const mission = project.missions[0];
    const running = ["in_progress", "testing", "ready_for_review"];
    mission.tasks_completed = project.tasks.filter((one) => one.status === "completed").length;
    mission.tasks_running = project.tasks.filter((one) => running.includes(one.status)).length;
    explainWaiting(project);
  });
}
