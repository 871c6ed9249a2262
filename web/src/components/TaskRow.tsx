import { memo } from "react";
import type { Task } from "../api";
import { phaseWord, plural, taskFace } from "../derive";
import { money, shortHash } from "../format";
import { Elapsed } from "./Elapsed";
import { State } from "./Icon";

/**
 * Two lines in every state, so that no row changes its height while work goes on. The flow comes
 * as one text: a list would be a new one with every update, and every row would be drawn again.
 */
export const TaskRow = memo(function TaskRow({ task, flow }: { task: Task; flow: string }) {
  const face = taskFace(task);
  const after = task.depends_on.join(", ");
  return (
    <li className="task-row" data-task={task.name} data-status={task.status} data-tone={face.tone}>
      <span className="cell name">
        <span>{task.name}</span>
        <span className="clip second" title={after === "" ? undefined : `after ${after}`}>
          {after !== "" && (
            <>
              <span aria-hidden="true">← </span>
              <span className="unseen">after </span>
              {after}
            </>
          )}
        </span>
      </span>
      <span className="cell how">
        <State face={face} />
        <Phase phase={task.phase} done={task.status === "completed"} flow={flow.split(" ")} />
      </span>
      <span className="cell what">
        <span className="clip title" title={task.title}>{task.title}</span>
        <span className="clip second" title={task.why ?? undefined}>{task.why}</span>
      </span>
      <span className="cell who">
        <span className="clip">{task.agent ?? <span className="nothing">no agent</span>}</span>
        <span className="clip second num">{tries(task)}</span>
      </span>
      <span className="cell end spent num">
        <span>{task.started_at === null ? <Nothing /> : <Elapsed from={task.started_at} to={task.ended_at} />}</span>
        <span className="second">{task.started_at === null ? "" : money(task.cost_usd)}</span>
      </span>
      <span className="end commit">
        {task.commit === null ? <Nothing /> : <code title={task.commit}>{shortHash(task.commit)}</code>}
      </span>
    </li>
  );
});

function tries(task: Task): string {
  if (task.attempts === 0) return "not started";
  const attempts = plural(task.attempts, "attempt");
  if (task.retries === 0) return attempts;
  return `${attempts}, ${task.retries === 1 ? "1 retry" : `${task.retries} retries`}`;
}

function Nothing() {
  return <span className="nothing" aria-hidden="true">–</span>;
}

type PhaseProps = { phase: string | null; done: boolean; flow: string[] };

function Phase({ phase, done, flow }: PhaseProps) {
  const phases = [...flow, "complete"];
  const reached = done ? phases.length : phase === null ? 0 : phases.indexOf(phase) + 1;
  return (
    <span className="phase second">
      <span className="pips" aria-hidden="true">
        {phases.map((name, index) => (
          <i key={name} data-on={index < reached} data-now={!done && index === reached - 1} />
        ))}
      </span>
      {phase !== null && !done && <span>{phaseWord(phase)}</span>}
    </span>
  );
}
