import { memo } from "react";
import type { Agent } from "../api";
import { money } from "../format";
import { Elapsed } from "./Elapsed";

export const Agents = memo(function Agents({ agents }: { agents: Agent[] }) {
  const busy = agents.filter((agent) => agent.status === "busy").length;
  return (
    <section className="panel agents" aria-labelledby="agents-heading">
      <div className="panel-head">
        <h2 id="agents-heading">Agents</h2>
        <span className="note num">{busy} of {agents.length} busy</span>
      </div>
      {agents.length === 0 ? (
        <p className="hint">No agent yet. They take their seats when a mission starts.</p>
      ) : (
        <ul>
          {agents.map((agent) => (
            <AgentRow key={agent.id} agent={agent} />
          ))}
        </ul>
      )}
    </section>
  );
});

const AgentRow = memo(function AgentRow({ agent }: { agent: Agent }) {
  const busy = agent.status === "busy";
  return (
    <li className="agent" data-agent={agent.id} data-status={agent.status}>
      <span className="seat" aria-hidden="true" />
      <span className="clip who" title={agent.role}>{agent.id}</span>
      <span className="clip doing">
        {busy ? (
          <>
            on <b>{agent.task ?? "a task"}</b>
            {agent.mission !== null && <span className="nothing"> {agent.mission}</span>}
          </>
        ) : (
          <span className="nothing">idle</span>
        )}
      </span>
      <span className="end since num">{agent.since !== null && <Elapsed from={agent.since} to={null} />}</span>
      <span className="end num money">{money(agent.cost_usd)}</span>
    </li>
  );
});
