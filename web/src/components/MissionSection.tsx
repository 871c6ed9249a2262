import { memo, useId, useState } from "react";
import type { Mission, Task } from "../api";
import { hasEnded, missionFace, taskFace } from "../derive";
import { money, shortHash } from "../format";
import { Elapsed } from "./Elapsed";
import { State } from "./Icon";
import { TaskRow } from "./TaskRow";

/** More segments than this are thinner than the gaps between them. */
const SEGMENTS_MAX = 48;

type Props = { mission: Mission; tasks: Task[]; newest: boolean };

export const MissionSection = memo(function MissionSection({ mission, tasks, newest }: Props) {
  // Decided once: a mission that ends while someone reads it does not fold up under their eyes.
  const [open, setOpen] = useState(() => newest || !hasEnded(mission));
  const list = useId();
  const heading = useId();
  return (
    <section className="mission" data-mission={mission.id} data-status={mission.status} aria-labelledby={heading}>
      <div className="mission-head">
        <div className="mission-line">
          <State face={missionFace(mission.status)} />
          <span className="clip reason">{mission.status_reason}</span>
          <span className="where">
            <b>{mission.id}</b>
            <code>{mission.branch}</code> → <code>{mission.target}</code>
            <code className="tip">{mission.tip === null ? "–" : shortHash(mission.tip)}</code>
          </span>
        </div>
        <h2 id={heading}>{mission.goal}</h2>
        <Progress mission={mission} tasks={tasks} />
        <div className="mission-line counts num">
          <span>
            <b>{mission.tasks_completed}</b> of {mission.tasks_total} completed
          </span>
          <span><b>{mission.tasks_running}</b> running</span>
          <span data-bad={mission.tasks_failed > 0}><b>{mission.tasks_failed}</b> failed</span>
          <span className="push">
            <b>{money(mission.cost_usd)}</b> of {money(mission.budget_usd)}
          </span>
          <span className="took"><Elapsed from={mission.opened_at} to={mission.ended_at} /></span>
          <button type="button" className="fold-button" aria-expanded={open} aria-controls={list} onClick={() => setOpen(!open)}>
            {open ? "Hide tasks" : "Show tasks"}
          </button>
        </div>
      </div>
      <div id={list} hidden={!open}>
        {tasks.length === 0 ? (
          <p className="hint">{hasEnded(mission) ? "This mission had no tasks." : "Being planned; tasks appear here."}</p>
        ) : (
          <>
            <div className="task-row task-columns" aria-hidden="true">
              <span>Task · after</span>
              <span>State · phase</span>
              <span>What</span>
              <span>Agent · attempts</span>
              <span className="end">Time · cost</span>
              <span className="end">Commit</span>
            </div>
            <ol className="tasks" aria-label={`Tasks of ${mission.id}`}>
              {tasks.map((task) => (
                <TaskRow key={task.id} task={task} flow={mission.flow.join(" ")} />
              ))}
            </ol>
          </>
        )}
      </div>
    </section>
  );
});

function Progress({ mission, tasks }: { mission: Mission; tasks: Task[] }) {
  const total = Math.max(mission.tasks_total, 1);
  const share = (count: number) => ({ width: `${(100 * count) / total}%` });
  const perTask = tasks.length > 0 && tasks.length <= SEGMENTS_MAX;
  return (
    <div
      className="progress"
      role="progressbar"
      aria-label={`Progress of ${mission.id}`}
      aria-valuemin={0}
      aria-valuemax={mission.tasks_total}
      aria-valuenow={mission.tasks_completed}
      aria-valuetext={`${mission.tasks_completed} of ${mission.tasks_total} tasks completed`}
    >
      {perTask ? (
        tasks.map((task) => <span key={task.id} className="segment" data-tone={taskFace(task).tone} />)
      ) : (
        <>
          <span className="stretch" data-tone="done" style={share(mission.tasks_completed)} />
          <span className="stretch" data-tone="active" style={share(mission.tasks_running)} />
          <span className="stretch" data-tone="bad" style={share(mission.tasks_failed)} />
        </>
      )}
    </div>
  );
}
