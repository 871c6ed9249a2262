import { useEffect, useMemo } from "react";
import type { Overview } from "./api";
import { ActivityLog } from "./components/ActivityLog";
import { Agents } from "./components/Agents";
import { Header } from "./components/Header";
import { MissionSection } from "./components/MissionSection";
import { Needs } from "./components/Needs";
import { Connecting, Empty, Gone, StaleBar } from "./components/Stages";
import { needs as findNeeds, tasksByMission } from "./derive";
import { useView, type Live } from "./live";
import type { Connection } from "./store";

export function App({ live }: { live: Live }) {
  const { overview, connection } = useView(live);
  if (overview === null) {
    return connection.state === "reconnecting" ? (
      <Gone connection={connection} retryNow={live.retryNow} />
    ) : (
      <Connecting />
    );
  }
  return (
    <>
      <Dashboard overview={overview} connection={connection} />
      {connection.state === "reconnecting" && (
        <StaleBar connection={connection} shownAt={overview.now} retryNow={live.retryNow} />
      )}
    </>
  );
}

function Dashboard({ overview, connection }: { overview: Overview; connection: Connection }) {
  const { project, missions, tasks, agents, activity, cost } = overview;
  const needs = useMemo(() => findNeeds(overview), [missions, tasks]);
  const groups = useMemo(() => tasksByMission(tasks), [tasks]);

  useEffect(() => {
    const waiting = needs.length === 0 ? "" : `(${needs.length}) `;
    document.title = `${waiting}${project} · Kapelle`;
  }, [needs, project]);

  return (
    <div className="page" data-connection={connection.state}>
      <Header project={project} connection={connection} missions={missions} agents={agents} cost={cost} needs={needs} />
      <main className="work" aria-label="Missions" tabIndex={0}>
        <Needs needs={needs} />
        {missions.length === 0 && <Empty />}
        {missions.map((mission, index) => (
          <MissionSection
            key={mission.id}
            mission={mission}
            tasks={groups.get(mission.id) ?? NO_TASKS}
            newest={index === 0}
          />
        ))}
      </main>
      <aside className="side" aria-label="Agents and activity">
        <Agents agents={agents} />
        <ActivityLog lines={activity} />
      </aside>
    </div>
  );
}

const NO_TASKS: Overview["tasks"] = [];
