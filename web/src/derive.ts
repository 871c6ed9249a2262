/** Answers that the page reads off the overview. */

import type { Activity, Mission, MissionStatus, Overview, Task, TaskStatus } from "./api";

/** How a status looks; each tone also has its own icon and word, so colour never stands alone. */
export type Tone = "quiet" | "active" | "done" | "attention" | "bad";

export type IconName =
  | "circle" | "play" | "flask" | "eye" | "check" | "minus" | "cross" | "retry" | "clock"
  | "pause" | "slash" | "undo" | "box" | "question" | "stamp" | "send" | "info" | "warn";

export type Face = { word: string; icon: IconName; tone: Tone };

const TASK_FACES: Record<TaskStatus, Face> = {
  pending: { word: "Pending", icon: "circle", tone: "quiet" },
  in_progress: { word: "In progress", icon: "play", tone: "active" },
  testing: { word: "Testing", icon: "flask", tone: "active" },
  ready_for_review: { word: "In review", icon: "eye", tone: "active" },
  completed: { word: "Completed", icon: "check", tone: "done" },
  blocked: { word: "Blocked", icon: "minus", tone: "attention" },
  failed: { word: "Failed", icon: "cross", tone: "bad" },
  retrying: { word: "Retrying", icon: "retry", tone: "attention" },
  timed_out: { word: "Timed out", icon: "clock", tone: "bad" },
  paused: { word: "Paused", icon: "pause", tone: "quiet" },
  cancelled: { word: "Cancelled", icon: "slash", tone: "quiet" },
  rolled_back: { word: "Rolled back", icon: "undo", tone: "attention" },
  dead_letter: { word: "Dead letter", icon: "box", tone: "bad" },
};

const MISSION_FACES: Record<MissionStatus, Face> = {
  running: { word: "Running", icon: "play", tone: "active" },
  paused: { word: "Paused", icon: "pause", tone: "quiet" },
  awaiting_answer: { word: "Waiting for your answer", icon: "question", tone: "attention" },
  awaiting_approval: { word: "Waiting for your approval", icon: "stamp", tone: "attention" },
  delivering: { word: "Delivering", icon: "send", tone: "active" },
  delivered: { word: "Delivered", icon: "check", tone: "done" },
  failed: { word: "Failed", icon: "cross", tone: "bad" },
  cancelled: { word: "Cancelled", icon: "slash", tone: "quiet" },
};

/** A newer server may know a status that this page does not: show its word. */
function unknown(status: string): Face {
  return { word: status.replaceAll("_", " "), icon: "circle", tone: "quiet" };
}

export function taskFace(task: Pick<Task, "status" | "question">): Face {
  const face = TASK_FACES[task.status] ?? unknown(task.status);
  return task.question === null ? face : { word: "Asks you", icon: "question", tone: "attention" };
}

export function missionFace(status: MissionStatus): Face {
  return MISSION_FACES[status] ?? unknown(status);
}

export function phaseWord(phase: string): string {
  return phase.replace("integration_", "int. ").replaceAll("_", " ");
}

/** Something only a person can do. */
export type Need = {
  key: string;
  kind: "question" | "approval" | "action";
  heading: string;
  text: string;
  options: string[];
  command: string;
};

export function needs(overview: Overview): Need[] {
  const questions = overview.tasks.flatMap((task): Need[] =>
    task.question === null
      ? []
      : [
          {
            key: `${task.mission}/${task.name}`,
            kind: "question",
            heading: `${task.mission} · task ${task.name} · ${task.title}`,
            text: task.question.text,
            options: task.question.options,
            command: task.question.command,
          },
        ],
  );
  const commands = new Set(questions.map((need) => need.command));
  const asked = new Set(overview.tasks.filter((task) => task.question !== null).map((task) => task.mission));
  const missions = overview.missions.flatMap((mission): Need[] => {
    if (mission.needs === null || commands.has(mission.needs)) return [];
    // The mission waits for the answer that its task already asks for.
    if (mission.status === "awaiting_answer" && asked.has(mission.id)) return [];
    const approval = mission.status === "awaiting_approval";
    return [
      {
        key: mission.id,
        kind: approval ? "approval" : "action",
        heading: `${mission.id} · ${mission.goal}`,
        text:
          mission.status_reason ??
          (approval ? `Approve the delivery to ${mission.target}.` : "This mission waits for you."),
        options: [],
        command: mission.needs,
      },
    ];
  });
  return [...questions, ...missions];
}

/** "2 questions, 1 approval" */
export function needsSummary(all: Need[]): string {
  const words: [Need["kind"], string][] = [
    ["question", "question"],
    ["approval", "approval"],
    ["action", "action"],
  ];
  return words
    .map(([kind, word]) => [all.filter((need) => need.kind === kind).length, word] as const)
    .filter(([count]) => count > 0)
    .map(([count, word]) => plural(count, word))
    .join(", ");
}

export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function hasEnded(mission: Mission): boolean {
  return mission.ended_at !== null;
}

export function tasksByMission(tasks: Task[]): Map<string, Task[]> {
  const groups = new Map<string, Task[]>();
  for (const task of tasks) {
    const group = groups.get(task.mission);
    if (group === undefined) groups.set(task.mission, [task]);
    else group.push(task);
  }
  return groups;
}

/** Every word of the filter has to occur somewhere in the line. */
export function matches(line: Activity, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const text = `${line.level} ${line.actor} ${line.mission ?? ""} ${line.task ?? ""} ${line.text}`.toLowerCase();
  return words.every((word) => text.includes(word));
}
